"""The network and the categories of its values and rewards."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from moozi.core.config.section import NetworkName, NonNegativeInt, PositiveFloat, PositiveInt, Section


class NetworkConfig(Section):
  """The network of muzero and alphazero; all kinds have one interface, `Model`."""

  kind: NetworkName = Field(
    "conv_latent",
    description="resnet: residual convolutions, as in the thesis; mlp: dense layers, for vector "
    "observations; conv_latent: one convolution (strided ones if both sides of a frame have 40 cells or "
    "more), then dense layers on a hidden vector; multi_input: convolutions for each image of a Dict or "
    "Tuple, and dense layers that also read the other numbers (docs/environments.md); or your own: a "
    "registered name or module:function (docs/plugins.md)",
  )
  norm: Literal["layer", "batch", "none"] = Field(
    "layer",
    description="normalization; layer: layer norm, which is the same in acting and training; batch: batch "
    "norm, as in the thesis",
  )
  channels: PositiveInt = Field(16, description="resnet, conv_latent, multi_input: channels of convolutions")
  num_representation_blocks: NonNegativeInt = Field(
    6, description="resnet: residual blocks of the representation network"
  )
  num_dynamics_blocks: NonNegativeInt = Field(
    1,
    description="residual blocks of the dynamics network; mlp, conv_latent and multi_input use at least one; "
    "resnet has one more, which computes the next state",
  )
  num_prediction_blocks: NonNegativeInt = Field(
    1, description="residual blocks of the prediction network, before its heads"
  )
  latent_size: PositiveInt = Field(256, description="mlp, conv_latent, multi_input: size of the hidden state")
  head_size: PositiveInt = Field(128, description="width of the hidden layer of each head")
  conv_policy: bool = Field(
    False,
    description="resnet, board games: a 1×1 convolution of the prediction blocks' output adds to the logits "
    "of moves, at their cells or columns (docs/board_games.md)",
  )
  action_offsets: bool = Field(
    False,
    description="resnet, games whose moves act at cells: in the dynamics network each cell receives a "
    "learned vector for its offset from the move (docs/board_games.md)",
  )
  batch_norm_decay: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
    0.99,
    description="norm=batch, center_frames: decay of the running averages at each change; the first changes "
    "with center_frames have a smaller decay. The averages normalize in acting, with center_frames also in "
    "training",
  )
  mover_view: bool = Field(
    False,
    description="board games: show the network the pieces of the player to move in the planes of player 0, "
    "and the other's in those of player 1; false: as the environment shows them (docs/board_games.md)",
  )
  normalize_observations: bool = Field(
    False,
    description="subtract the running mean of each entry of the observation, divide by its running standard "
    "deviation, and clip to ±10; for float32 observations, as in robotics",
  )
  center_frames: bool = Field(
    False,
    description="subtract each cell's running mean from the frames and scale them to a variance of about 1; "
    "for frames with a constant background, as in Atari",
  )

  @model_validator(mode="after")
  def _fits(self) -> "NetworkConfig":
    if self.normalize_observations and self.center_frames:
      raise ValueError("normalize_observations=true: must be false with center_frames=true")
    return self


class ScalarTransformConfig(Section):
  """The support Z of categorical values and rewards, and the function φ that maps env units to it."""

  support_min: int = Field(
    -30,
    description="smallest category, to which smaller values and rewards are clipped. A new network predicts "
    "about the middle of the support, so choose a middle near the returns of random play",
  )
  support_max: int = Field(
    30,
    description="largest category, to which larger values and rewards are clipped; with the default epsilon, "
    "30 stands for about 905 in env units",
  )
  epsilon: PositiveFloat = Field(
    0.001, description="ε of φ(x) = sign(x)(√(|x|+1) − 1) + εx, which maps env units to categories"
  )

  @model_validator(mode="after")
  def _ordered(self) -> "ScalarTransformConfig":
    if not self.support_min <= 0 <= self.support_max or self.support_min == self.support_max:
      raise ValueError(
        f"support_min={self.support_min}, support_max={self.support_max}: must hold 0 between them"
      )
    return self
