// The page of `zellige play`: controls on both sides, one or two samples between them. The controls show the settings of one of
// them, `active`; the text and the seed are those of both.
import {decode, encode} from "./link.js";
import {showDistribution} from "./look.js";
import {Pane} from "./pane.js";
import {listed} from "./server.js";

const $ = id => document.getElementById(id);
const all = (query, of = document) => [...of.querySelectorAll(query)];
const make = (tag, more = {}) => Object.assign(document.createElement(tag), more);
const checked = name => document.querySelector(`[name=${name}]:checked`).value;

const kindOf = model => model.kind === "smiles" && model.tokens !== "char" ? "symbols" : model.kind; // symbols: SELFIES
const VERBS = {grid: "Solve", image: "Draw", roll: "Compose"};
const GROWING = ["blockwise", "left_to_right"]; // from left to right: what stands after a masked token is not known
const HINTS = {
  grid: "Point at a cell and type a digit; Backspace clears it. You can paste a puzzle.",
  image: "Drag over pixels to mask them, then fill in.",
  roll: "Mask notes to have them composed again; keep a voice and write the others anew.",
  smiles: "Each letter is a token. Begin with some, or mask atoms of a molecule.",
  symbols: "Each symbol is a token: an atom, a branch or a ring. Begin with SMILES, or mask symbols.",
  text: "Mask words to have them filled in; kept words stay when you write again.",
};
const POINT = "Point at a token to see what else the network thought likely there.";

const models = await listed();
const panes = [];
let active;

const say = (text, wrong = false) => { $("status").textContent = text; $("status").className = wrong ? "wrong" : ""; };

// what panes ask of the page
const page = {
  models, say,
  text: () => $("words").value,
  chat: () => $("chat").checked,
  seed: () => Number($("seed").value),
  colour: () => checked("colour"),
  clicks: () => checked("click"),
  verb: pane => VERBS[pane.model.kind] ?? "Write",
  progress: (step, steps) => { $("progress").max = Math.max(steps, 1); $("progress").value = step; say(`step ${step} of ${steps}`); },
  look: (pane, i) => showDistribution($("distribution"), pane, i),
  changed: () => { if (panes.map(pane => pane.follow()).some(Boolean)) show(); else { buttons(); remember(); } },
  activate: pane => { if (pane !== active && panes.includes(pane)) { active = pane; show(); } },
};

// ---------------------------------------------------------------------------------------------------- controls <-> settings
function show() {
  const {model, settings} = active;
  const card = all("[name=model]")[model.number];
  card.checked = true;
  $("sentence").textContent = model.sentence;
  $("typed").hidden = !panes.some(pane => pane.model.running);
  $("gaps").hidden = model.samplers.every(s => GROWING.includes(s.name));
  $("asking").hidden = model.kind !== "text";
  $("template").textContent = model.template && `(${model.template})`;
  $("words").placeholder = model.kind === "smiles" ? "CC(=O)N" : "anything, or nothing";
  $("examples").replaceChildren(...model.examples.map(text => make("button", {
    className: "quiet", textContent: model.running ? text : "an example puzzle", title: text, onclick: () => example(text)})));
  $("classed").hidden = !model.classes.length;
  $("classes").replaceChildren(...["", ...model.classes].map(name => {
    const label = make("label"), radio = make("input", {type: "radio", name: "class", value: name, checked: name === settings.class});
    label.append(radio, make("span", {textContent: name || "any"}));
    return label;
  }));
  $("hint").textContent = [HINTS[kindOf(model)], model.approximate].filter(Boolean).join(" ");
  $("masks").textContent = {grid: "empties the cell", image: "masks pixels", roll: "masks the note", smiles: "masks the letter", symbols: "masks the symbol"}[kindOf(model)] ?? "masks the word";
  $("sampler").replaceChildren(...model.samplers.map(s => make("option", {value: s.name, textContent: s.label, title: s.name})));
  $("sampler").value = settings.sampler;
  $("sampler-name").textContent = settings.sampler;
  $("way").textContent = active.sampler.about;
  $("steps-word").textContent = active.sampler.options.some(option => option.name === "block_sampler") ? "Steps per block" : "Steps";
  $("steps").disabled = !active.sampler.counted;
  $("steps").title = active.sampler.counted ? "" : "this sampler takes as many steps as it needs";
  for (const id of ["steps", "temperature", "top_p"]) $(id).value = settings[id];
  options();
  for (const pane of panes) {
    pane.root.classList.toggle("active", pane === active);
    pane.part("name").textContent = panes.length > 1 ? `${pane.letter}  ${pane.model.name}` : pane.model.name;
    pane.part("name").setAttribute("aria-pressed", pane === active);
    pane.part("how").textContent = [pane.model.what, pane.model.test && `on test data ${pane.model.test}`].filter(Boolean).join("; ");
    pane.part("how").title = pane.part("how").textContent;
  }
  for (const which of all(".which")) which.textContent = panes.length > 1 ? `for ${active.letter}` : "";
  $("distribution").replaceChildren(make("p", {textContent: POINT}));
  buttons();
  remember();
}

// the options of the sampler as fields: an empty one means the default, which stands in it in grey
function options() {
  const values = active.settings.options;
  $("options").replaceChildren(...active.choices().map(option => {
    const label = make("label"), type = {switch: "checkbox", text: "text"}[option.kind] ?? "number";
    const input = make("input", {type, name: option.name, step: option.kind === "number" ? "any" : 1, placeholder: option.default ?? ""});
    if (type === "checkbox") input.checked = values[option.name] ?? option.default;
    else input.value = values[option.name] ?? "";
    input.oninput = () => {
      if (type === "checkbox") values[option.name] = input.checked;
      else if (input.value.trim() === "") delete values[option.name];
      else values[option.name] = type === "number" ? input.valueAsNumber : input.value.trim();
      remember();
    };
    if (option.name === "block_sampler") input.onchange = options;
    label.append(make("span", {textContent: option.name.replaceAll("_", " ")}), input, make("span", {className: "hint", textContent: option.note}));
    return label;
  }));
  $("more").hidden = !$("options").children.length;
}

function buttons() {
  const busy = panes.some(pane => pane.abort), masked = panes.reduce((sum, pane) => sum + pane.away.size, 0), done = panes.some(pane => pane.done);
  $("write").textContent = page.verb(active);
  for (const id of ["write", "another", "clear", "beside", "fill"]) $(id).disabled = busy;
  $("stop").hidden = !busy;
  $("another").hidden = busy;
  $("fill").hidden = !masked;
  $("fill").textContent = `Fill in ${masked} masked`;
  $("unlock").hidden = !panes.some(pane => pane.locked.size);
  const it = {text: "this text", smiles: "this molecule", image: "this picture", grid: "this grid", roll: "this piece"}[active.model.kind] ?? "it";
  $("bound").textContent = `How likely is ${it}?`;
  for (const pane of panes) for (const button of all(".files button", pane.root)) button.disabled = busy || !pane.saves(button.textContent.slice(1));
  for (const id of ["bound", "both"]) $(id).disabled = busy || !done || !panes.some(pane => pane.done && pane.model.bounded);
}

function example(text) {
  if (!active.model.running) return active.puzzle(text);
  for (const pane of panes) pane.clear();
  $("words").value = text;
  page.changed();
  $("words").focus();
  $("words").scrollTop = 0;
}

// ---------------------------------------------------------------------------------------------------- the link
let waiting;
const remember = () => { clearTimeout(waiting); waiting = setTimeout(writeLink, 150); };

function writeLink() {
  clearTimeout(waiting);
  const theme = document.documentElement.dataset.theme;
  const state = {
    panes: panes.map(pane => ({...pane.settings, model: pane.model.name, kept: [...pane.locked].sort((a, b) => a - b).map(i => [i, pane.tokens[i]])})),
    seed: $("seed").value, text: $("words").value, chat: $("chat").checked, colour: checked("colour"),
  };
  history.replaceState(null, "", encode(state, theme));
}

// what a model opens with: the first of its examples, a text in the place of another model's
function begin(model) {
  const words = $("words"), untouched = ["", ...models.flatMap(m => m.examples)].includes(words.value);
  if (untouched) words.value = model.running ? model.examples[0] ?? "" : "";
  if (!model.running && model.examples.length) active.puzzle(model.examples[0]);
}

// The page as its address says it, which is drawn at once; without one the first model, which opens by itself
// unless the reader wants no motion.
function restore() {
  const state = decode(location.hash), missing = [], wanted = [], linked = state.panes.length > 0;
  for (const {model: name, kept, options: given, ...more} of state.panes) {
    const model = models.find(m => m.name === name);
    if (!model) { missing.push(name); continue; }
    const all = Object.fromEntries([...model.samplers, ...model.inside].flatMap(s => s.options).map(option => [option.name, option.kind]));
    const typed = Object.fromEntries(Object.entries(given).filter(([key]) => key in all).map(([key, value]) =>
      [key, {switch: value === "true", text: value}[all[key]] ?? Number(value)]));
    const bare = more.sampler === undefined && !Object.keys(typed).length; // a link to a model alone: as its card samples
    const numbers = Object.fromEntries(["steps", "temperature", "top_p"].filter(id => more[id] !== undefined && Number.isFinite(Number(more[id]))).map(id => [id, Number(more[id])]));
    const labelled = bare && more.class === undefined ? {} : {class: model.classes.includes(more.class) ? more.class : ""};
    wanted.push([{...more, ...numbers, model: model.number, options: bare ? undefined : typed, ...labelled}, kept]);
  }
  if (state.seed !== null && /^\d+$/.test(state.seed)) $("seed").value = state.seed;
  $("words").value = state.text;
  $("chat").checked = state.chat;
  for (const radio of all("[name=colour]")) radio.checked = radio.value === state.colour;
  if (!all("[name=colour]").some(radio => radio.checked)) document.querySelector("[name=colour]").checked = true;
  for (const pane of panes.splice(0)) { pane.silence(); pane.abort?.abort(); pane.root.remove(); }
  $("beside").checked = wanted.length > 1;
  const made = (wanted.length ? wanted : [[undefined, []]]).map(([settings, kept]) => [insert(settings), kept]);
  for (const [pane, kept] of made) if (kept.length) { pane.held = true; pane.keep(kept); }
  active = panes[0];
  if (!linked) begin(active.model);
  show();
  say(missing.length ? `the link is of ${missing.join(" and ")}, which this page does not have; zellige play ${missing.join(" ")}` : "", Boolean(missing.length));
  if (!missing.length && (linked || !matchMedia("(prefers-reduced-motion: reduce)").matches)) write(false, true);
}

function insert(settings) {
  const pane = new Pane(page, "AB"[panes.length], settings);
  panes.push(pane);
  $("panes").append(pane.root);
  $("panes").classList.toggle("two", panes.length > 1);
  active ??= pane;
  pane.fit();
  return pane;
}

// ---------------------------------------------------------------------------------------------------- what is done
// all samples at once; a failure is said in one line
async function together(some, work) {
  say("waiting");
  const running = Promise.allSettled(some.map(work));
  buttons();
  const failed = (await running).find(end => end.status === "rejected");
  if (failed) say(failed.reason.name === "AbortError" ? "stopped" : failed.reason.message, failed.reason.name !== "AbortError");
  else say("done");
  page.changed();
}

async function write(fill = false, gently = false) {
  if (panes.some(pane => pane.abort)) return;
  const wrong = all("#controls input:enabled").find(input => !input.checkValidity());
  if (wrong) {
    wrong.closest("details")?.setAttribute("open", "");
    say(`${wrong.name || wrong.labels[0].textContent.trim()}: ${wrong.validationMessage}`, true);
    wrong.focus();
    return;
  }
  if ($("asked").contains(document.activeElement) && document.activeElement.tagName === "BUTTON") active.root.querySelector(".player").focus();
  await together(fill ? panes.filter(pane => pane.away.size) : panes, pane => pane.draw(fill, gently));
}

const bound = both => together(panes.filter(pane => pane.done && pane.model.bounded), pane => pane.bound(both));
const stop = () => { for (const pane of panes) pane.abort?.abort(); };

$("gallery").replaceChildren(...models.map(model => {
  const card = $("card").content.cloneNode(true).firstElementChild, [radio, glyph, name] = card.children;
  card.title = `${model.name}: ${model.sentence ?? ""} ${model.what}`;
  Object.assign(radio, {value: model.number, onchange: () => { active.choose(model.number); begin(model); say(""); show(); }});
  glyph.firstChild.setAttribute("href", `#glyph-${model.kind === "text" && !GROWING.includes(model.sampler) ? "gaps" : model.kind}`);
  name.textContent = model.name;
  return card;
}));

$("write").onclick = () => write();
$("another").onclick = () => { $("seed").value = (Number($("seed").value) || 0) + 1; write(); };
$("fill").onclick = () => write(true);
$("stop").onclick = stop;
$("bound").onclick = () => bound(false);
$("both").onclick = () => bound(true);
$("unlock").onclick = () => { for (const pane of panes) { pane.locked.clear(); pane.player.grow(); } page.changed(); };
$("clear").onclick = () => { for (const pane of panes) pane.clear(); say(""); page.changed(); };
$("keys").onclick = () => $("help").showModal();
$("share").onclick = async () => {
  writeLink();
  try { await navigator.clipboard.writeText(location.href); say("link copied"); } catch { say("the link is in the address bar"); }
};
// the second sample begins with the settings of the first: change one thing and see what it does
$("beside").onchange = () => {
  if ($("beside").checked) active = insert({...panes[0].settings, options: {...panes[0].settings.options}});
  else {
    const pane = panes.pop();
    pane.silence(); pane.root.remove();
    $("panes").classList.remove("two");
    active = panes[0];
  }
  for (const pane of panes) pane.fit();
  show();
};
$("sampler").onchange = () => { active.settings.sampler = $("sampler").value; active.settings.options = active.advised(); show(); };
for (const id of ["steps", "temperature", "top_p"]) $(id).oninput = () => { active.settings[id] = $(id).valueAsNumber; remember(); };
$("seed").oninput = $("words").oninput = $("chat").onchange = remember;
$("classes").onchange = () => { active.settings.class = checked("class"); remember(); };
for (const radio of all("[name=colour]")) radio.onchange = () => {
  for (const pane of panes) { pane.player.colourBy(radio.value); pane.player.draw(pane.player.frame); }
  remember();
};

// what a control means, while it is pointed at or has the focus
const meanings = Object.fromEntries(all("#meanings dt").map(dt => [dt.textContent, dt.nextElementSibling.textContent]));
for (const element of all("[data-explain]")) {
  const word = element.dataset.explain, meaning = (meanings[word] ?? "").split(";")[0];
  const tell = () => { $("explain").textContent = meaning.includes(word) ? meaning : `${word}: ${meaning}`; };
  element.addEventListener("focusin", tell);
  element.addEventListener("pointerenter", tell);
}

// ---------------------------------------------------------------------------------------------------- keys
$("words").onkeydown = e => { if (e.key === "Enter" && !e.shiftKey) { e.preventDefault(); write(); } };
document.addEventListener("keydown", e => {
  if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || $("help").open) return;
  const typing = e.target.matches("textarea, [type=text], [type=number]"), field = e.target.matches("input, textarea, select");
  const presses = e.target.closest("button, summary, a, select"), by = e.shiftKey ? 10 : 1;
  const each = act => () => { for (const pane of panes) act(pane.player); };
  const keys = {
    ArrowLeft: each(p => p.go(p.frame - by)), ArrowRight: each(p => p.go(p.frame + by)), Home: each(p => p.go(0)), End: each(p => p.go(Infinity)),
    " ": each(p => p.play()),
  };
  if (e.key === "Escape") stop();
  else if (e.key === "?" && !typing) $("help").showModal();
  else if (e.key === "Enter" && !presses) write();
  else if (keys[e.key] && !field && !(e.key === " " && presses)) keys[e.key]();
  else return;
  e.preventDefault();
});

addEventListener("hashchange", restore);
addEventListener("resize", () => { for (const pane of panes) pane.fit(); });
restore();
