#!/usr/bin/env bash
# The models that come with Zellige, trained and put into the package: NAME by name, or all of them, one after another.
#
#   STORIES=folder MNIST=folder CHORALES=file SUDOKU=file QM9=file studies/included-models/models.sh [FOLDER] [NAME ...]
#
# STORIES: a folder with train.jsonl and validation.jsonl, a story a line ({"text": ...}); MNIST: one with the official .gz files;
# CHORALES: Jsb16thSeparated.json; SUDOKU: a .csv of puzzles and solutions;
# QM9: a .csv with the column smiles. 0.9 to 4.7 hours a model on one or two idle cores. A run that was stopped goes on where it
# was; ship.py then takes minutes a model. SHIP=0: train only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-runs/models}
shift || true
budget=(--train.device cpu --train.samples 0 --train.save-minutes 5)

train() { # NAME METHOD [OPTION ...]
  local run=$folder/$1
  shift
  zellige train "$@" "${budget[@]}" --run "$run" $(test -e "$run/config.json" && echo --resume)
}
for name in "${@:-molecules chorales sudoku mnist nouns stories stories-mdlm}"; do
  for model in $name; do
    case $model in
      stories | stories-mdlm) # 5.8M parameters on 3.3M subwords, first in blocks of 4 at a constant rate
        data=$STORIES/validation.jsonl
        texts=(--data.path "$STORIES/train.jsonl" --data.validation "$data" --data.pack packed --data.tokenizer bpe:2048
          --net.layers 6 --net.hidden 256 --net.heads 4 --net.length 608 --net.conv 7 --train.batch 4 --train.optimizer muon
          --train.times stratified)
        train stories-start bd3lm --block 4 "${texts[@]}" --train.steps 5252 --train.lr 4e-3 --train.decay constant \
          --train.validate-every 500 --train.validate-rows 64
        cooled=("${texts[@]}" --train.start "$folder/stories-start" --train.lr 3e-3 --train.warmup 20 --train.ema 0.998
          --train.validate-every 600 --train.validate-rows 128)
        test "$model" = stories && train stories bd3lm --block 4 "${cooled[@]}" --train.steps 1800
        test "$model" = stories || train stories-mdlm mdlm "${cooled[@]}" --train.steps 2400 ;;
      mnist) # 1.1M parameters; 2.3 epochs
        data=$MNIST
        train mnist md4 --data.name mnist --data.path "$MNIST" --data.labels --net.kind unet --net.channels 32 \
          --net.multipliers 1 2 2 --net.blocks 1 --net.attention 7 --train.steps 7200 --train.batch 16 --train.lr 2e-3 \
          --train.ema 0.999 --train.validate-every 1200 --train.validate-rows 128 ;;
      nouns) # 2.0M parameters on patches of 4 x 4; 1.55 million pictures, half of them with their head as class, then 85%
        data=
        pictures=(mdlm --data.name nouns --data.labels --net.no-published --net.kind dit --net.patch 4 --net.layers 5 --net.hidden 160
          --net.heads 5 --net.condition 32 --train.batch 32 --train.optimizer muon --train.precision bfloat16 --train.validate-rows 256)
        half=("${pictures[@]}" --train.label-dropout 0.5)
        constant=("${half[@]}" --train.decay constant --train.ema 0.999 --train.validate-every 1000)
        train nouns-start "${constant[@]}" --train.lr 3e-3 --train.warmup 200 --train.steps 3222
        train nouns-faster "${constant[@]}" --train.start "$folder/nouns-start" --train.lr 5e-3 --train.warmup 100 --train.steps 5492
        falling=("${half[@]}" --train.lr 5e-3 --train.warmup 20 --train.ema 0.998)
        train nouns-sooner "${falling[@]}" --train.start "$folder/nouns-faster" --train.steps 5200 --train.validate-every 1300
        train nouns-longer "${constant[@]}" --train.start "$folder/nouns-sooner" --train.lr 5e-3 --train.warmup 100 \
          --train.steps 11602 --train.seed 5
        train nouns-longest "${falling[@]}" --train.start "$folder/nouns-longer" --train.steps 8000 --train.validate-every 1000 \
          --train.seed 6
        train nouns "${pictures[@]}" --train.label-dropout 0.15 --train.start "$folder/nouns-longest" --train.decay wsd \
          --train.lr 5e-3 --train.warmup 100 --train.ema 0.998 --train.steps 15000 --train.validate-every 1500 --train.seed 7 ;;
      chorales)
        data=$CHORALES
        train chorales mdlm --data.name jsb-chorales --data.path "$CHORALES" --data.size 64 --net.layers 4 --net.hidden 128 \
          --net.heads 4 --net.conv 5 --net.dropout 0.1 --train.steps 6000 --train.batch 12 --train.lr 2e-3 --train.ema 0.999 \
          --train.validate-every 500 ;;
      sudoku) # whole grids; then the solutions of puzzles, and the network reads its own first prediction; then 8 layers for 5
        data=$SUDOKU
        grids=(mdlm --data.name sudoku --data.path "$SUDOKU" --data.size 9)
        puzzles=("${grids[@]}" --data.augment 200 --data.given puzzle --net.self-condition --train.batch 32 --train.lr 1.5e-3
          --train.warmup 300 --train.ema 0.999)
        train sudoku-grids "${grids[@]}" --data.augment 50 --net.layers 5 --net.hidden 96 --net.heads 6 --train.steps 30000 \
          --train.batch 16 --train.lr 2e-3 --train.warmup 300 --train.ema 0.999 --train.validate-every 2000
        train sudoku-puzzles "${puzzles[@]}" --train.start "$folder/sudoku-grids" --train.steps 2000 \
          --train.validate-every 1000
        puzzles+=(--train.given-dropout 0.15 --train.validate-every 2500 --train.seed 3)
        train sudoku-five "${puzzles[@]}" --train.start "$folder/sudoku-puzzles" --train.steps 11000
        train sudoku "${puzzles[@]}" --train.start "$folder/sudoku-five" --net.layers 8 --train.steps 15000 ;;
      molecules)
        data=$QM9
        train molecules mdlm --data.name qm9 --data.path "$QM9" --net.layers 4 --net.hidden 128 --net.heads 4 --net.conv 5 \
          --train.steps 10000 --train.batch 64 --train.optimizer adamw --train.lr 2e-3 --train.warmup 200 --train.ema 0.999 \
          --train.validate-every 1000 --train.validate-rows 512 ;;
      *) echo "no model $model"; exit 2 ;;
    esac
    test "${SHIP:-1}" = 0 || python "$here/ship.py" "$folder/$model" "$model" --data "$data"
  done
done
