#!/usr/bin/env bash
# Nine systems on text8, one network and one budget: 4 layers of hidden 128, 128 characters, 2,000 steps of 8 sequences.
#
#   studies/text8/text8.sh [FOLDER] [RUN ...]      e.g. studies/text8/text8.sh runs/text8 mdlm sedd-uniform
#
# TEXT8 names the file to read: text8 itself, or a prefix of it (the published results in docs/evidence/results.md are for
# the first 6,877,825 characters, cut 6.0M / 0.4M / rest). STEPS and BATCH are another budget. Each run takes 5 to 10 minutes
# on one core. Then
#
#   python studies/table.py FOLDER/*/evaluate-text8-test.json      prints the table
set -euo pipefail
folder=${1:-runs/text8}
shift || true
data=(--data.name text8 --data.path "${TEXT8:?set TEXT8 to the file}" --data.validation 400000 --data.test 477825)
net=(--net.layers 4 --net.hidden 128 --net.heads 4 --net.length 128 --net.conv 7)
budget=(--train.steps "${STEPS:-2000}" --train.batch "${BATCH:-8}" --train.lr 3e-3 --train.ema 0.998 --train.device cpu)

declare -A choices=(
  [d3pm-absorbing]="d3pm --process absorbing" [d3pm-uniform]="d3pm --process uniform --schedule mutual-information"
  [sedd-absorbing]="sedd --process absorbing" [sedd-uniform]="sedd --process uniform"
  [radd]=radd [mdlm]=mdlm [md4]=md4 [genmd4]=genmd4 [udlm]=udlm
)
for run in "${@:-mdlm md4 radd genmd4 sedd-absorbing d3pm-absorbing sedd-uniform d3pm-uniform udlm}"; do
  for name in $run; do # shellcheck disable=SC2086
    zellige train ${choices[$name]} "${data[@]}" "${net[@]}" "${budget[@]}" --run "$folder/$name"
    zellige evaluate "$folder/$name" --limit 2000
  done
done
