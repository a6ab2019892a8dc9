# MooZi in a container. The default command trains MinAtar Breakout for about five minutes:
#
#   docker build -t moozi .
#   docker run --rm --shm-size=1g -v moozi-runs:/home/moozi/runs moozi
#
# With CUDA 13, which JAX's wheels bring along (the host needs NVIDIA's driver and container toolkit):
#
#   docker build -t moozi-cuda --build-arg ACCELERATOR=gpu .
#   docker run --rm --shm-size=1g --gpus all -v moozi-runs:/home/moozi/runs moozi-cuda
FROM python:3.12-slim AS build
WORKDIR /build
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir dist .

FROM python:3.12-slim
# Environment suites to install: any of atari, dm-control, gymnasium, gymnax, minatar, mujoco, open-spiel, pgx; or envs for all.
ARG EXTRAS=minatar
# The extra `gpu` for JAX with CUDA; empty for the CPU.
ARG ACCELERATOR=""
WORKDIR /install
COPY constraints.txt .
COPY --from=build /build/dist dist
RUN python -m pip install --no-cache-dir -c constraints.txt "$(ls dist/*.whl)[${EXTRAS}${ACCELERATOR:+,${ACCELERATOR}}]"
# The id of the host's user lets a run write into a mounted folder: --build-arg UID=$(id -u)
ARG UID=1000
RUN useradd --create-home --uid "${UID}" moozi && install -d -o moozi /home/moozi/runs
USER ${UID}
WORKDIR /home/moozi
ENTRYPOINT ["moozi"]
CMD ["train", "minatar/breakout_short"]
