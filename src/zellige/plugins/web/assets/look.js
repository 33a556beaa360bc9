// What the marks on a sample mean, and the prediction of a token, at the frame that is shown.

const shown = piece => piece === null ? "·" : piece === "" ? "(part of a letter)" : piece === " " ? "␣" : piece.replaceAll("\n", "↵");

const MASKED = {image: "a pixel of this colour is masked: not drawn yet", grid: "an empty cell is masked: not solved yet", roll: "a pale bar below is masked: not composed yet"};
const COLOURS = {step: "pale: written early; strong: written late", entropy: "strong: the network was unsure of it"};

// a sample of each mark with its meaning, to stand on the picture
export function marks(pane, colour) {
  const make = (tag, more) => Object.assign(document.createElement(tag), more), out = [];
  const mark = (name, text) => {
    const both = make("span", {textContent: text});
    both.prepend(make("span", {className: `swatch ${name}`}));
    out.push(both);
  };
  if (pane.sample.start.includes(null)) mark("masked", MASKED[pane.model.kind] ?? "a bar is a masked token: not written yet");
  mark(colour === "new" ? "new" : "tint", COLOURS[colour] ?? "written in this step");
  return out;
}

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
  const noise = "This is the network's prediction. The step draws from its product with the noise, in which a token may also stay as it is.";
  out.replaceChildren(head, ...pane.model.draws_predictions ? [] : [make("p", {textContent: noise})], ...rows);
}
