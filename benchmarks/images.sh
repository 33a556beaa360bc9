#!/usr/bin/env bash
# Ordered and unordered noise on the same images: MNIST at 14 x 14, 8 grey levels, one network and one budget.
#
#   MNIST=folder benchmarks/images.sh [FOLDER] [RUN ...]     e.g. benchmarks/images.sh runs/mnist md4 tauldr-gaussian
#
# MNIST is a folder with the official .gz files; without it they are downloaded (12 MB). 5 to 15 minutes a run on one core.
# Each run gets its bits per dimension (2,000 test images), a sheet of samples, and test images completed from their upper half.
#
#   python benchmarks/table.py FOLDER/*/evaluate-mnist-test.json      prints the table
set -euo pipefail
folder=${1:-runs/mnist}
shift || true
data=(--data.name mnist ${MNIST:+--data.path "$MNIST"} --data.size 14 --data.levels 8)
net=(--net.layers 3 --net.hidden 64 --net.heads 4 --net.condition 64 --net.conv 5)
budget=(--train.steps 1500 --train.batch 16 --train.rate 3e-3 --train.ema 0.998 --train.device cpu --train.validate-every 0)

declare -A choices=(
  [d3pm-gaussian]="d3pm --process gaussian --prediction leave-one-out --diffusion-steps 256" [d3pm-absorbing]="d3pm --diffusion-steps 256"
  [tauldr-gaussian]="tauldr --process gaussian --prediction leave-one-out" [tauldr-uniform]="tauldr --process uniform" [md4]=md4
)
for run in "${@:-md4 d3pm-absorbing d3pm-gaussian tauldr-gaussian}"; do
  for name in $run; do # shellcheck disable=SC2086
    zellige train ${choices[$name]} "${data[@]}" "${net[@]}" "${budget[@]}" --run "$folder/$name"
    zellige evaluate "$folder/$name" --limit 2000
    zellige sample "$folder/$name" --count 16 --steps 128 --out "$folder/$name/samples.png"
    zellige infill "$folder/$name" --example 1 --keep top --count 8 --steps 128 --out "$folder/$name/infill.png"
  done
done
