#!/usr/bin/env bash
# Trains the networks of this study, and the long run. A run that was stopped goes on where it was.
#
#   studies/nouns/nouns.sh [FOLDER] [NAME ...]      unet u-vit: the short runs; patches: the long one, not by default
set -euo pipefail
folder=${1:-runs/nouns}
shift || true
train() { # NAME [OPTION ...]
  local run=$folder/$1
  shift
  zellige train mdlm --data.name nouns --net.no-published --train.device cpu --train.precision bfloat16 --train.samples 0 \
    --train.minutes 0 --train.save-minutes 10 "$@" --run "$run" $(test -e "$run/config.json" && echo --resume)
}
short=(--train.batch 16 --train.steps 600 --train.lr 2e-3 --train.warmup 50 --train.ema 0.99 --train.validate-every 600
  --train.validate-rows 64)
uvit=(--net.kind u-vit --net.channels 24 --net.blocks 1 --net.attention 0 --net.layers 4 --net.hidden 128 --net.heads 4)
for name in "${@:-unet u-vit}"; do
  for run in $name; do
    case $run in
      unet) # 2.5M parameters
        train unet --net.kind unet --net.channels 16 --net.multipliers 1 2 4 8 --net.blocks 1 --net.attention 8 "${short[@]}" ;;
      u-vit) # 0.9M parameters
        train u-vit "${uvit[@]}" "${short[@]}" ;;
      patches) # 6.6M parameters; with the head as class, which half of the pictures come without
        patches=(--net.kind dit --net.patch 4 --net.layers 6 --net.hidden 256 --net.heads 4 --data.labels
          --train.label-dropout 0.5 --train.optimizer muon --train.batch 32 --train.lr 3e-3 --train.validate-rows 256)
        train constant "${patches[@]}" --train.steps 6654 --train.decay constant --train.warmup 200 --train.ema 0.999 \
          --train.validate-every 1000
        train patches "${patches[@]}" --train.start "$folder/constant" --train.steps 2400 --train.warmup 20 --train.ema 0.998 \
          --train.validate-every 800 ;;
      *) echo "no run $run"; exit 2 ;;
    esac
  done
done
