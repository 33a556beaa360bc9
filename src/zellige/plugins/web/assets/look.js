// The distribution that a token was sampled from, at the frame that is shown.

const shown = piece => piece === null ? "·" : piece === "" ? "(part of a letter)" : piece === " " ? "␣" : piece.replaceAll("\n", "↵");

export function showDistribution(out, pane, i) {
  let k = pane.player.frame;
  while (k > 0 && !pane.details[k].has(i)) k--;
  const change = pane.details[k].get(i), make = (tag, more) => Object.assign(document.createElement(tag), more);
  if (!change || change.length < 4) {
    const why = pane.sample.given[i] || pane.locked.has(i) ? "was given" : pane.sample.start[i] === null && !change
      ? "is not written yet at this step" : "has no distribution at this step";
    out.replaceChildren(make("p", {textContent: `Position ${i + 1} ${why}.`}));
    return;
  }
  const [, , piece, p, bits, rivals] = change;
  const listed = rivals.some(([rival]) => rival === piece) ? rivals : [...rivals, [piece, p]];
  const rows = listed.map(([rival, q]) => {
    const row = make("div", {className: rival === piece ? "row chosen" : "row"}), bar = make("span", {className: "bar"});
    bar.style.setProperty("--p", q);
    row.append(make("code", {textContent: shown(rival)}), bar, make("span", {textContent: `${(100 * q).toFixed(1)}%`}));
    return row;
  });
  const head = make("p", {textContent: `Position ${i + 1}, written in step ${pane.data.steps[k]}: entropy ${bits.toFixed(2)} bits`});
  head.title = "entropy: how unsure the network was, in bits; 0 is certain, 1 is a coin toss";
  out.replaceChildren(head, ...rows);
}
