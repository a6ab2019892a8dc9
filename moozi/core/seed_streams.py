"""Makes the seeds and random states that NumPy makes of a SeedSequence, in less time.

Source: SeedSequence and MT19937 of NumPy 1.17 to 2, whose streams do not change (NEP 19). Departures: none.
"""

import ctypes
from typing import Any

import numpy as np
from jaxtyping import UInt32

_INIT_A, _MULT_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULT_B = 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = 0xCA01F9DD, 0x4973F715
_WORD = 2**32 - 1
_POOL_SIZE, _KEY_SIZE = 4, 624
# SeedSequence hashes each word of the pool, then each ordered pair of words, before it hashes a spawn key.
_SPAWN_FACTOR = _INIT_A * pow(_MULT_A, _POOL_SIZE**2, 2**32) & _WORD


def _powers(first: int, factor: int, count: int) -> UInt32[np.ndarray, "count"]:
  """Returns first, first · factor, first · factor², … modulo 2**32."""
  return np.array([first * pow(factor, i, 2**32) & _WORD for i in range(count)], np.uint32)


_CONSTANTS = _powers(_INIT_B, _MULT_B, _KEY_SIZE + 1)
_XORED, _FACTORS = (x.reshape(-1, _POOL_SIZE) for x in (_CONSTANTS[:-1], _CONSTANTS[1:]))


class SeededState:
  """Makes the random states `RandomState(MT19937(SeedSequence(seed)))`, one after the other.

  Use only the newest one: they share an MT19937, which is seeded again in place. NumPy reads the 624 words of
  a seed one by one; here they are copied.
  """

  def __init__(self) -> None:
    self._bits = np.random.MT19937(0)
    self._memory = _memory_of(self._bits)

  def __reduce__(self) -> tuple[Any, ...]:
    return SeededState, ()  # a copy has its own MT19937

  def seed(self, seed: int) -> np.random.RandomState:
    """Returns the random state of a seed. Raises ValueError: the seed is negative."""
    sequence = np.random.SeedSequence(seed)
    if self._memory is None:
      return np.random.RandomState(np.random.MT19937(sequence))
    words = sequence.pool ^ _XORED
    words *= _FACTORS
    words ^= words >> 16
    self._memory[:_KEY_SIZE] = words.ravel()
    self._memory[0], self._memory[_KEY_SIZE] = 2**31, _KEY_SIZE - 1
    return np.random.RandomState(self._bits)


def _memory_of(bits: np.random.MT19937) -> UInt32[np.ndarray, "625"] | None:
  """Returns the memory of an MT19937 as an array: its key, and its position in the key.

  Returns None if NumPy has arranged them in another way.
  """
  words = (ctypes.c_uint32 * (_KEY_SIZE + 1)).from_address(bits.ctypes.state_address)
  memory, state = np.ctypeslib.as_array(words), bits.state["state"]
  return memory if np.array_equal(memory, [*state["key"], state["pos"]]) else None


class SpawnedSeeds:
  """The seeds of the children of a SeedSequence.

  Args:
    entropy: of the SeedSequence, from 0 to 2**128 - 1.

  Raises: ValueError: the entropy is outside this range.
  """

  def __init__(self, entropy: int) -> None:
    if not 0 <= entropy < 2**128:
      raise ValueError(f"entropy={entropy}: must be from 0 to 2**128 - 1")
    self._pool = np.random.SeedSequence(entropy).pool.tolist()

  def seed(self, n: int) -> int:
    """Returns `SeedSequence(entropy, spawn_key=(n,)).generate_state(1, np.uint64)[0]` for n below 2**32.

    Of the whole hash, only the part that is computed here depends on n.
    """
    factor, words = _SPAWN_FACTOR, []
    for word in self._pool:
      value = n ^ factor
      factor = factor * _MULT_A & _WORD
      value = value * factor & _WORD
      value = _MIX_L * word - _MIX_R * (value ^ value >> 16) & _WORD
      words.append(value ^ value >> 16)
    factor, out = _INIT_B, 0
    for i in range(2):
      value = words[i] ^ factor
      factor = factor * _MULT_B & _WORD
      value = value * factor & _WORD
      out |= (value ^ value >> 16) << 32 * i
    return out
