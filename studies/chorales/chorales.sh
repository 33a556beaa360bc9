#!/usr/bin/env bash
# Four-part chorales: tauLDR (uniform noise on pitches) and MDLM, one network and one budget; 64 sixteenths of four voices.
#
#   CHORALES=folder studies/chorales/chorales.sh [FOLDER] [RUN ...]
#
# CHORALES is a folder with Jsb16thSeparated.json(.xz); without it the file is downloaded (1.7 MB). 10 to 20 minutes a run on one core.
# Each run gets its bits per note, samples, and the continuation of the first half of a test chorale as a piano roll and as MIDI.
set -euo pipefail
folder=${1:-runs/chorales}
shift || true
data=(--data.name jsb-chorales ${CHORALES:+--data.path "$CHORALES"} --data.size 64)
net=(--net.layers 3 --net.hidden 96 --net.heads 4 --net.condition 64 --net.conv 5)
budget=(--train.steps 1500 --train.batch 12 --train.lr 3e-3 --train.ema 0.998 --train.device cpu --train.validate-every 0)

declare -A choices=([tauldr]="tauldr --process uniform" [mdlm]=mdlm [tauldr-gaussian]="tauldr --process gaussian")
declare -A grid=([tauldr]="--grid log-snr") # uniform noise is slow on steps even in t: docs/evidence/results.md
for run in "${@:-mdlm tauldr}"; do
  for name in $run; do # shellcheck disable=SC2086
    zellige train ${choices[$name]} "${data[@]}" "${net[@]}" "${budget[@]}" --run "$folder/$name"
    zellige evaluate "$folder/$name"
    zellige sample "$folder/$name" --count 4 --steps 256 ${grid[$name]:-} --out "$folder/$name/samples.png"
    zellige infill "$folder/$name" --example 3 --keep first --count 2 --steps 256 ${grid[$name]:-} --out "$folder/$name/continued.mid"
    zellige infill "$folder/$name" --example 3 --keep first --count 2 --steps 256 ${grid[$name]:-} --out "$folder/$name/continued.png"
  done
done
