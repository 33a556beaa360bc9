#!/usr/bin/env bash
# The pictures of docs/evidence/results.md: MNIST, binarized MNIST, Fashion-MNIST and some of CIFAR-10, each method and network for the same time.
#
#   studies/images/images.sh [FOLDER] [RUN ...]     e.g. studies/images/images.sh runs/images mnist-md4 cifar-md4
#
# MNIST, FASHION: folders with the official .gz files, which are downloaded without them. CIFAR: an .npy (N, 32, 32, 3) of uint8.
# The steps of a run are those that one core takes in about 1,000 seconds; a run that was stopped goes on where it was.
# The networks have the published conventions; those of the page had not (--net.no-published).
# Each run gets its bound on test images, a sheet of 16 samples, and a test image completed from its upper half.
#
#   python studies/table.py FOLDER/mnist-*/evaluate-*-test.json      prints a table
set -euo pipefail
folder=${1:-runs/images}
shift || true
mnist=(--data.name mnist ${MNIST:+--data.path "$MNIST"})
fashion=(--data.name fashion-mnist ${FASHION:+--data.path "$FASHION"})
binary=(--data.name binarized-mnist ${MNIST:+--data.path "$MNIST"})
cifar=(--data.name array --data.path "${CIFAR:-cifar10.npy}" --data.kind image --data.vocabulary 256 --data.flip)
unet=(--net.kind unet --net.channels 32 --net.multipliers 1 2 2 --net.blocks 1)
flat=(--net.kind flat-unet --net.channels 32 --net.blocks 4 --net.attention 0)
dit=(--net.kind dit --net.layers 3 --net.hidden 64 --net.heads 4 --net.condition 64 --net.conv 5)
gaussian=(--process gaussian)
budget=(--train.lr 2e-3 --train.ema 0.997 --train.device cpu --train.validate-every 400 --train.validate-rows 128 --train.save-minutes 5)

train() { # RUN STEPS BATCH METHOD [OPTION ...]
  local run=$folder/$1 steps=$2 batch=$3
  shift 3
  zellige train "$@" --train.steps "$steps" --train.batch "$batch" "${budget[@]}" --run "$run" \
    $(test -e "$run" && echo --resume)
}
for run in "${@:-mnist-md4 mnist-tauldr mnist-d3pm mnist-md4-flat mnist-md4-dit binary-md4 classes-md4 fashion-md4 cifar-md4 cifar-md4-dit}"; do
  for name in $run; do
    case $name in
      mnist-md4) train $name 2400 16 md4 "${mnist[@]}" "${unet[@]}" --net.attention 7 ;;
      mnist-md4-flat) train $name 1850 16 md4 "${mnist[@]}" "${flat[@]}" ;;
      mnist-md4-dit) train $name 950 16 md4 "${mnist[@]}" "${dit[@]}" ;;
      mnist-tauldr) train $name 2000 16 tauldr "${gaussian[@]}" --head logistic "${mnist[@]}" "${unet[@]}" --net.attention 7 ;;
      mnist-d3pm) train $name 2000 16 d3pm "${gaussian[@]}" --head logistic "${mnist[@]}" "${unet[@]}" --net.attention 7 ;;
      binary-md4) train $name 2400 16 md4 "${binary[@]}" "${unet[@]}" --net.attention 7 ;;
      classes-md4) train $name 2400 16 md4 "${mnist[@]}" --data.labels "${unet[@]}" --net.attention 7 ;;
      fashion-md4) train $name 2400 16 md4 "${fashion[@]}" "${unet[@]}" --net.attention 7 ;;
      cifar-md4) train $name 2400 8 md4 "${cifar[@]}" "${unet[@]}" --net.attention 8 ;;
      cifar-md4-flat) train $name 1900 8 md4 "${cifar[@]}" "${flat[@]}" ;;
      cifar-md4-dit) train $name 110 8 md4 "${cifar[@]}" "${dit[@]}" ;;
      *) echo "no run $name"; exit 2 ;;
    esac
    zellige evaluate "$folder/$name" --limit 1000
    zellige sample "$folder/$name" --count 16 --steps 250 --out "$folder/$name/samples.png"
    zellige infill "$folder/$name" --example 1 --keep top --count 8 --steps 250 --out "$folder/$name/infill.png"
  done
done
