# docker build -t zellige .                            CPU
# docker build -t zellige --build-arg TORCH=cuda .     PyTorch with CUDA, several gigabytes; run it with --gpus all
# docker run --rm -it -v "$PWD:/work" zellige demo     runs/ is then beside you; on Linux add --user "$(id -u):$(id -g)"
FROM python:3.13-slim AS build
ARG TORCH=cpu
COPY constraints.txt /source/
RUN python -m venv /zellige \
 && case "$TORCH" in \
      cpu) index=https://download.pytorch.org/whl/cpu ;; \
      cuda) index=https://pypi.org/simple ;; \
      *) echo "TORCH is $TORCH; it must be cpu or cuda" >&2; exit 2 ;; \
    esac \
 && /zellige/bin/pip install --no-cache-dir -c /source/constraints.txt --index-url "$index" --extra-index-url https://pypi.org/simple torch
COPY pyproject.toml hatch_build.py README.md LICENSE /source/
COPY src /source/src
RUN /zellige/bin/pip install --no-cache-dir -c /source/constraints.txt '/source[data,web]'

FROM python:3.13-slim
COPY --from=build /zellige /zellige
RUN useradd --create-home zellige && mkdir /work && chown zellige /work
USER zellige
WORKDIR /work
ENV PATH=/zellige/bin:$PATH HF_HOME=/tmp/huggingface ZELLIGE_CACHE=/tmp/zellige MPLCONFIGDIR=/tmp/matplotlib
ENTRYPOINT ["zellige"]
CMD ["--help"]
