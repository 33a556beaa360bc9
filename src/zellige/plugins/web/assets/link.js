// The share link: settings of the page as a URL fragment, and back.
//   #model=sudoku&sampler=confidence&steps=81&temperature=0.7&top_p=1&o.confidence=entropy&kept=0.4-1.2&seed=0
// Entries of the second sample begin with "b."; those of samplers' options with "o.".

const FIELDS = ["model", "sampler", "steps", "temperature", "top_p", "class"];

// state: {panes: [{model, sampler, steps, ..., options, kept: [[position, token]]}], seed, text, chat, colour}
export function encode(state, theme) {
  const out = new URLSearchParams();
  state.panes.forEach((pane, i) => {
    const before = i ? "b." : "";
    for (const name of FIELDS) if (pane[name] !== "" && pane[name] !== undefined) out.set(before + name, pane[name]);
    for (const [name, value] of Object.entries(pane.options)) out.set(`${before}o.${name}`, value);
    if (pane.kept.length) out.set(`${before}kept`, pane.kept.map(([i, token]) => `${i}.${token}`).join("-"));
  });
  out.set("seed", state.seed);
  if (state.text) out.set("text", state.text);
  if (state.chat) out.set("chat", "1");
  if (state.colour !== "new") out.set("colour", state.colour);
  if (theme) out.set("theme", theme);
  return `#${out}`;
}

export function decode(fragment) {
  const link = new URLSearchParams(fragment.replace(/^#/, "")), panes = [];
  for (const before of ["", "b."]) {
    if (!link.has(`${before}model`)) break;
    const pane = {options: {}, kept: []};
    for (const name of FIELDS) if (link.has(before + name)) pane[name] = link.get(before + name);
    for (const [key, value] of link) if (key.startsWith(`${before}o.`)) pane.options[key.slice(before.length + 2)] = value;
    for (const pair of link.get(`${before}kept`)?.split("-") ?? []) {
      const [i, token] = pair.split(".").map(Number);
      if (Number.isInteger(i) && Number.isInteger(token)) pane.kept.push([i, token]);
    }
    panes.push(pane);
  }
  return {panes, seed: link.get("seed"), text: link.get("text") ?? "", chat: link.has("chat"), colour: link.get("colour") ?? "new", theme: link.get("theme")};
}
