// One sample on the page: its settings, its board with the player below, the tokens that are masked or kept by hand.
// All text is set as text, never as HTML; a draw is a stream of lines that ends when its request is aborted.
import {marks} from "./look.js";
import {asDrawing, drawMolecule} from "./molecule.js";
import {download, handOver, lines} from "./server.js";
import {play as sound} from "./sound.js";

const LABEL = {text: "text", smiles: "molecule", image: "picture", grid: "grid", roll: "piece"};
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

export class Pane {
  // page: {models, text(), chat(), seed(), colour(), clicks(), say(text, wrong), progress(step, steps), changed(), look(pane, i)}
  constructor(page, letter, settings) {
    this.page = page;
    this.letter = letter;
    this.root = document.getElementById("pane").content.cloneNode(true).firstElementChild;
    this.part = name => this.root.querySelector(`[data-part=${name}]`);
    this.part("name").onclick = () => page.activate(this);
    this.part("listen").onclick = () => this.listen();
    this.root.addEventListener("pointerdown", () => page.activate(this));
    this.root.addEventListener("focusin", () => page.activate(this));
    this.listenToClicks(this.part("text"));
    this.choose(settings?.model ?? 0, settings);
  }

  get model() { return this.page.models[this.settings.model]; }
  get sampler() { return this.model.samplers.find(s => s.name === this.settings.sampler); }
  get noun() { return LABEL[this.model.kind] ?? "sample"; }
  get cell() { return this.model.layout?.cell ?? 1; }

  // another model with how its card samples, and an empty board; nothing stays of the one before but what `settings` says
  choose(number, settings = {}) {
    const model = this.page.models[number], advice = model.advice, sampler = advice.sampler ?? model.sampler;
    this.settings = {
      sampler, steps: advice.steps ?? model.steps, temperature: advice.temperature ?? 1, top_p: advice.top_p ?? 1, class: model.classes[0] ?? "",
      ...settings, model: number,
    };
    this.held = false;  // whether the settings are those for given cells
    if (!model.samplers.some(s => s.name === this.settings.sampler)) this.settings.sampler = sampler;
    this.settings.options = {...settings.options ?? this.advised()};
    this.part("listen").hidden = model.kind !== "roll";
    const formats = [...model.formats.filter(format => !format.missing).map(format => format.name), ...model.kind === "smiles" ? ["svg", "smi"] : []];
    this.part("files").replaceChildren(...formats.map(name =>
      Object.assign(document.createElement("button"), {textContent: `.${name}`, onclick: () => this.save(name)})));
    this.part("text").removeAttribute("style");
    this.root.dataset.kind = model.kind;
    this.root.dataset.unit = model.tokens === "char" ? "char" : "token";
    this.clear();
  }

  // what the model's card says of the chosen sampler's options
  advised() {
    const {steps, temperature, top_p, sampler, infill, ...options} = this.model.advice;
    return this.settings.sampler === (sampler ?? this.model.sampler) ? options : {};
  }

  // The card may have different settings for filling in. They come with the first given cell and go with the last one; a setting
  // that somebody changed stays. Returns whether a setting is another now.
  follow() {
    const held = this.locked.size > 0, {infill = {}, ...advice} = {temperature: 1, top_p: 1, steps: this.model.steps, ...this.model.advice};
    if (held === this.held) return false;
    this.held = held;
    const given = {...advice, ...infill}, [from, to] = held ? [advice, given] : [given, advice];
    const names = Object.keys(infill).filter(name => this.settings[name] === from[name]);
    for (const name of names) this.settings[name] = to[name];
    return names.length > 0;
  }

  // the options of the sampler; of blocks also those of the one that writes each of them
  choices() {
    const needs = {guidance: this.model.classes.length, symmetries: this.model.symmetric};
    const fits = option => needs[option.name] ?? true;
    const of = (name, all = this.model.samplers) => (all.find(s => s.name === name)?.options ?? []).filter(fits);
    const own = of(this.settings.sampler), names = own.map(option => option.name);
    const inside = names.includes("block_sampler") ? of(this.settings.options.block_sampler ?? "ancestral", this.model.inside) : [];
    return [...own, ...inside.filter(option => !names.includes(option.name))];
  }

  // ------------------------------------------------------------------------------------------------ the board
  clear() {
    this.abort?.abort();
    this.silence();
    this.tokens = Array(this.model.length).fill(-1);
    this.locked = new Set(); this.away = new Set(); this.clashes = new Set();
    this.here = 0;
    this.done = this.facts = null;
    this.stand();
  }

  // the board before anything is written: what is kept, and nothing else
  stand() {
    const L = this.model.length, labels = this.model.labels;
    this.part("numbers").replaceChildren();
    this.begin({
      start: this.tokens.map(t => t >= 0 ? labels[t] ?? null : null), given: this.tokens.map((_, i) => this.locked.has(i) ? 1 : 0),
      size: L, t: 1, step: 0, steps: 0, calls: 0,
    });
  }

  // the data of the player, from the first step of a draw
  begin(step) {
    const L = this.model.running ? step.size : this.model.length, wide = this.model.tokens === "char" || !this.model.running ? "·" : " ···";
    const start = step.start.slice(0, L), given = step.given.slice(0, L);
    this.sample = {pieces: start.map(piece => piece ?? wide), given, calls: [step.calls], entropy: Array(L).fill(null), start, changes: [[]]};
    this.data = {steps: [step.step], t: [step.t], total: step.steps, entropy: 1, kind: this.model.layout, samples: [this.sample]};
    this.details = [new Map()];
    this.size = step.size;
    this.startTokens = this.tokens.slice();
    this.moves = [[]];
    this.player?.stop();
    this.player = zelligePlayer(this.root.querySelector(".player"), this.data, {classes: i => this.classes(i), drawn: frame => this.drawn(frame), pace: () => this.pace(), more: () => Boolean(this.abort)});
    this.player.colourBy(this.page.colour());
    this.fit();
    this.part("molecule").toggleAttribute("hidden", true);
    this.player.choose(0);
    this.player.grow();
  }

  add(step) {
    step.changes = step.changes.filter(([i]) => i < this.size);
    this.data.steps.push(step.step);
    this.data.t.push(step.t);
    this.data.total = step.steps;
    this.sample.calls.push(step.calls);
    this.sample.changes.push(step.changes.map(([i, , piece]) => [i, piece]));
    this.moves.push(step.changes.map(([i, token]) => [i, token]));
    const moved = step.changes.filter(([i, token]) => token !== this.tokens[i]);  // of the others another token changed the text
    this.details.push(new Map(moved.map(change => [change[0], change])));
    for (const [i, token, piece, , bits] of step.changes) {
      this.tokens[i] = token;
      this.sample.pieces[i] = (piece ?? this.sample.pieces[i]) || "·";
      if (bits !== undefined) { this.sample.entropy[i] = bits; this.data.entropy = Math.max(this.data.entropy, bits); }
    }
  }

  // as large as fits: the letters of a text by its length, the cells of a board by its rows
  fit() {
    const text = this.part("text"), box = text.parentElement, running = this.model.running;
    text.style.setProperty("--down", running ? 1 : this.model.length / this.cell / this.model.layout.across);
    if (!running) return;
    const letters = this.size * (this.model.tokens === "char" ? 1 : 3.7), area = box.clientWidth * Math.max(box.clientHeight - 24, 160);
    const side = Math.sqrt(area / letters / (this.model.tokens === "char" ? 1.2 : 1.05));
    let size = Math.round(Math.min(28, Math.max(15, side)));
    do text.style.fontSize = `${size--}px`; while (size >= 14 && box.scrollHeight > box.clientHeight + 1);
  }

  // after each drawing of the player: which span is which position, and what happens in words
  drawn(frame) {
    const spans = [...this.part("text").querySelectorAll(":scope > span")];
    if (spans[0] !== this.first || spans.length !== this.index?.size) {
      this.first = spans[0];
      this.index = new Map(spans.map((span, i) => [span, i * this.cell]));
      spans.forEach((span, i) => { span.title = ""; if (i * this.cell >= this.size) span.hidden = true; });
    }
    this.part("story").textContent = this.story(frame);
    this.part("marks").replaceChildren(...marks(this, this.page.colour()));
    this.part("molecule").toggleAttribute("hidden", !(this.done?.atoms?.length && frame === this.data.steps.length - 1));
    const last = this.data.steps.length - 1;
    for (const name of ["first", "back"]) this.part(name).disabled = frame === 0;
    for (const name of ["on", "last"]) this.part(name).disabled = frame === last;
    for (const name of ["play", "scrub"]) this.part(name).disabled = last === 0;
    const blanks = this.model.kind === "smiles" && this.done && frame === last;  // they fill a molecule up
    const padding = blanks ? this.sample.pieces.findLastIndex(piece => piece.trim()) + 1 : Math.min(this.done?.end ?? this.size, this.size);  // nothing behind the end of a text
    if (this.model.running) spans.forEach((span, i) => { span.hidden = i >= padding; });
  }

  // milliseconds a frame: a run takes about nine seconds
  pace() { return Math.min(200, Math.max(30, 9000 / this.data.steps.length)); }

  story(frame) {
    const step = this.data.steps[frame], free = this.sample.given.filter(g => !g).length;
    if (!this.data.total) return `${plural(this.model.length, "position")}, nothing written yet. ${this.page.verb(this)} fills them in, step by step.`;
    if (!frame) return this.sample.start.includes(null)
      ? `At the start ${plural(free, "position")} ${free === 1 ? "is" : "are"} masked. The network predicts them all; each step writes some.`
      : "At the start there is noise. Each step changes some positions until a sample is left.";
    if (step >= this.data.total) return `Finished: ${plural(this.data.total, "step")}. Point at a token to see what else was likely.`;
    const moves = this.moves[frame], written = moves.filter(([, token]) => token >= 0).length, masked = moves.length - written;
    return `In step ${step} the sampler wrote ${written ? plural(written, "position") : "nothing"}`
      + `${masked ? ` and masked ${masked} again` : ""}.`;
  }

  classes(i) {
    return (/^\s/.test(this.sample.pieces[i] ?? "") ? "word " : "") + (this.locked.has(i) ? "locked " : "") + (this.away.has(i) ? "away " : "") + (this.clashes.has(i) ? "clash " : "")
      + (this.here === i && document.activeElement === this.part("text") ? "here" : "");
  }

  // ------------------------------------------------------------------------------------------------ by hand
  listenToClicks(text) {
    text.tabIndex = 0;
    text.removeAttribute("aria-hidden");
    text.setAttribute("role", "group");
    text.setAttribute("aria-label", "The sample. Arrow keys go from token to token, Enter masks, L keeps, a digit sets a cell.");
    const at = e => this.index.get(e.target.closest("[data-part=text] > span"));
    text.onpointerover = e => { const i = at(e); if (i !== undefined) this.page.look(this, i); };
    text.onpointerdown = e => {
      const i = at(e);
      if (i === undefined) return;
      e.preventDefault();
      text.focus();
      this.here = i;
      this.page.look(this, i);
      this.painting = this.press(i, this.page.clicks());
      if (e.target.hasPointerCapture?.(e.pointerId)) e.target.releasePointerCapture(e.pointerId);
    };
    text.onpointerenter = e => { if (!e.buttons) this.painting = undefined; };
    text.onpointermove = e => {
      const i = at(e);
      if (e.buttons && this.painting !== undefined && i !== undefined && !this.model.running) this.press(i, this.painting.mode, this.painting.on);
    };
    text.onkeydown = e => this.key(e);
    text.onpaste = e => {
      if (!this.model.labels.length) return;
      e.preventDefault();
      this.puzzle(e.clipboardData.getData("text"));
    };
    text.onblur = () => this.player.draw(this.player.frame);
  }

  // the positions of the word, the pixel, the cell that i stands in
  word(i) {
    if (this.model.kind === "smiles") return [i];
    if (!this.model.running) return Array.from({length: this.cell}, (_, k) => i - i % this.cell + k);
    const piece = k => this.sample.pieces[k] ?? "·";
    const blank = k => /^\s+$/.test(piece(k)), starts = k => /^\s/.test(piece(k));
    if (blank(i)) return [i];
    let from = i, to = i;
    while (from > 0 && !starts(from) && !blank(from - 1)) from--;
    while (to + 1 < this.size && !blank(to + 1) && !starts(to + 1)) to++;
    return Array.from({length: to - from + 1}, (_, k) => from + k);
  }

  // mask (away) or keep (lock) the word at i, or let go of it; {mode, on} for what is dragged over next
  press(i, mode, on) {
    const places = this.word(i).filter(k => this.tokens[k] >= 0), set = mode === "lock" ? this.locked : this.away;
    if (!places.length || this.abort) return undefined;
    on ??= !set.has(i);
    for (const k of places) {
      if (on) set.add(k); else set.delete(k);
      if (on) (mode === "lock" ? this.away : this.locked).delete(k);
    }
    this.player.grow();
    this.page.changed();
    return {mode, on};
  }

  // keep tokens that were typed, or that a link holds: [position, token] pairs, -1 for none
  keep(pairs) {
    for (const [i, token] of pairs) {
      if (i < 0 || i >= this.model.length || token < -1 || token >= this.model.size) continue;
      this.tokens[i] = token;
      this.away.delete(i);
      if (token >= 0) this.locked.add(i); else this.locked.delete(i);
    }
    this.clashes.clear();
    this.done = null;
    this.stand();
    this.page.changed();
  }

  // a puzzle as text, cell after cell; a dot, an underscore or a zero is an empty one
  puzzle(text) {
    const cells = [...text.replace(/\s/g, "")];
    if (cells.length !== this.model.length) return this.page.say(`a puzzle has ${this.model.length} cells, this has ${cells.length}`, true);
    this.locked.clear();
    this.keep(cells.map((cell, i) => [i, this.model.labels.indexOf(cell)]));
  }

  key(e) {
    const across = (this.model.layout?.across ?? 1) * this.cell, roll = this.model.kind === "roll", labels = this.model.labels;
    const side = roll ? across : this.cell, down = roll || this.model.running ? this.cell : across;
    const moves = {ArrowLeft: -side, ArrowRight: side, ArrowUp: -down, ArrowDown: down};
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (moves[e.key]) this.here = Math.min(this.size - 1, Math.max(0, this.here + moves[e.key]));
    else if (e.key === "Enter") this.press(this.here, "away");
    else if (e.key.toLowerCase() === "l") this.press(this.here, "lock");
    else if (labels.includes(e.key)) this.keep([[this.here, labels.indexOf(e.key)]]);
    else if (labels.length && ["Backspace", "Delete", "0", "."].includes(e.key)) this.keep([[this.here, -1]]);
    else return;
    e.preventDefault();
    e.stopPropagation();
    this.page.look(this, this.here);
    this.player.draw(this.player.frame);
    this.part("text").focus();
  }

  // ------------------------------------------------------------------------------------------------ asked of the server
  request(fill) {
    const {sampler, options, steps, temperature, top_p} = this.settings, {guidance, ...unguided} = options;
    const own = {model: this.model.number, sampler, options: unguided, steps, temperature, top_p, seed: this.page.seed()};
    if (this.model.classes.length && this.settings.class) Object.assign(own, {class: this.settings.class, options});
    const held = fill ? (_, i) => !this.away.has(i) : (_, i) => this.locked.has(i);
    if (fill || this.locked.size) own.fixed = this.tokens.slice(0, this.size).map((t, i) => held(t, i) ? t : -1);
    else if (this.model.running) Object.assign(own, {text: this.page.text(), chat: this.model.kind === "text" && this.page.chat()});
    return own;
  }

  // draws and shows each step as it comes; `gently` plays the steps instead, one after the other. Who wants no motion sees the end.
  async draw(fill, gently = false) {
    const abort = this.abort = new AbortController(), own = this.request(fill), locked = this.locked;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.silence();
    try {
      let last = 0;
      for await (const step of lines("/api/draw", own, abort.signal)) {
        if (step.start) { // a request that is refused leaves the last sample as it is
          this.asked = own;
          this.more = {};
          this.done = null;
          this.away = new Set(); this.clashes = new Set();
          this.part("numbers").replaceChildren();
          this.drawnBy = step.distribution;
          this.tokens = [...step.from];
          this.begin(step);
          this.here = 0;
          if (gently && !still) this.player.play();
        } else if (step.tokens || step.changes.length) this.add(step);
        if (step.tokens) {
          this.done = step;
          this.tokens = step.tokens;
          this.locked = locked;
          for (const i of step.clashes ?? []) this.clashes.add(i);
          if (step.atoms?.length) drawMolecule(this.part("molecule"), step.atoms, step.bonds);
        }
        const now = performance.now();
        this.page.progress(step.step, step.steps);
        if (step.tokens || (!still && now - last > 40)) { this.player.grow(!gently || still); last = now; }
      }
      this.tell();
    } finally { this.abort = null; this.player.grow(!gently || still); this.fit(); }
  }

  // what is known of the sample; `more` of its -log p, by what was asked
  tell(asked, more) {
    const done = this.done, own = this.asked;
    if (!done) return;
    if (asked) this.more[asked] = more;
    const options = Object.entries(own.options).map(([name, value]) => `, ${name} ${value}`).join("");
    const changed = own.temperature !== 1 || own.top_p < 1 || own.options.top_k || (own.options.guidance ?? 1) !== 1
      ? "; temperature, top-p, top-k or guidance change the distribution" : "";
    const nats = done.nats === null ? "" : `-log p of the tokens as they were sampled = ${done.nats.toFixed(1)} nats (${done.drawn} tokens)`;
    const numbers = [nats, ...Object.values(this.more)].filter(Boolean);
    const cost = `${plural(done.calls, "network evaluation")}, ${done.seconds.toFixed(2)} s`;
    this.facts = [this.model.name, `${own.sampler}${options}, ${done.steps} steps, seed ${own.seed}, temperature ${own.temperature}, top-p ${own.top_p}`,
      ...[done.verdict, ...numbers].filter(Boolean)];
    const line = (text, className = "") => Object.assign(document.createElement("span"), {textContent: text, className});
    this.part("numbers").replaceChildren(
      ...done.verdict ? [line(done.verdict.startsWith("valid") ? `✓ ${done.verdict}` : done.verdict, done.verdict.startsWith("valid") ? "verdict good" : "verdict bad")] : [],
      ...this.model.kind === "smiles" && this.model.tokens !== "char" ? [line(done.text, "spelling")] : [],  // of its symbols, the SMILES
      line(cost), ...numbers.map(text => line(text)), line(`sampled by ${this.drawnBy}${changed}`, "soft"));
    this.part("molecule").setAttribute("aria-label", `structure of ${done.text}`);
  }

  // -log p of what was sampled: from above, or from both sides, each with Student's interval over all the replicates
  async bound(both) {
    const abort = this.abort = new AbortController(), n = this.size, above = [], below = [], sets = 8;
    const number = values => {
      const m = values.length, mean = values.reduce((a, b) => a + b, 0) / m;
      const half = 2.36 * Math.sqrt(values.reduce((a, v) => a + (v - mean) ** 2, 0) / (m - 1) / m);
      return values.includes(null) ? "?" : mean.toFixed(1) + (m === sets ? ` ± ${half.toFixed(1)}` : "");
    };
    try {
      const body = {model: this.model.number, tokens: this.tokens.slice(0, n), held: this.sample.given.slice(0, n), both};
      if (this.asked.class) body.class = this.asked.class;
      const drawn = body.held.filter(g => !g).length, given = drawn < n ? ", given the rest" : "";
      for await (const line of lines("/api/bound", body, abort.signal)) {
        above.push(line.nats);
        below.push(line.below);
        this.page.progress(above.length, line.exact ? 1 : sets);
        const mean = above.reduce((a, b) => a + b, 0) / above.length, unit = this.model.unit.replace("nats/", "bits/");
        const around = above.length < sets ? "" : "; 95% over the draws", sign = line.exact ? "=" : "≤", even = Math.log2(this.model.size).toFixed(2);
        this.tell(both ? "both" : "bound", both && !line.exact
          ? `${line.determined ? number(below) : "?"} ≤ -log p ≤ ${number(above)} nats${given} (of ${line.distribution}${around})`
          : `-log p ${sign} ${number(above)} nats, ${(mean / Math.LN2 / drawn).toFixed(3)} ${unit}${given} (${line.distribution}${around}; a blind guess: ${even})`);
      }
    } finally { this.abort = null; }
  }

  // ------------------------------------------------------------------------------------------------ heard and saved
  silence() {
    this.hush?.();
    this.hush = null;
    this.part("listen").textContent = "Listen";
    this.root.querySelector(".now")?.style.removeProperty("visibility");
  }

  listen() {
    if (this.hush) return this.silence();
    if (!this.done?.notes) return this.page.say("nothing to hear yet: compose first", true);
    this.part("listen").textContent = "Silence";
    this.hush = sound(this.done.notes, step => Object.assign(this.root.querySelector(".now").style,
      {visibility: step < 0 ? "" : "visible", gridColumn: Math.max(step, 0) + 2}), () => this.silence());
  }

  // whether there is something to save: a drawing only of what can be read as a molecule
  saves(format) { return Boolean(this.done && (format !== "svg" || this.done.atoms?.length)); }

  async save(format) {
    if (!this.done || this.abort) return this.page.say("nothing to save yet: write first", true);
    const n = this.size, cut = moves => moves.filter(([i]) => i < n);
    this.page.say(`making the .${format}`);
    try {
      if (format === "smi") handOver(new Blob([`${this.done.text}\n`], {type: "chemical/x-daylight-smiles"}), "zellige.smi");
      else if (format === "svg") handOver(new Blob([asDrawing(this.part("molecule"))], {type: "image/svg+xml"}), "zellige.svg");
      else await download({
        model: this.model.number, format, title: `${this.model.name}, ${this.asked.sampler}`.slice(0, 200), facts: this.facts ?? [],
        steps: this.data.steps, t: this.data.t, calls: this.sample.calls, held: this.sample.given.slice(0, n),
        start: this.startTokens.slice(0, n), changes: this.moves.map(cut), entropy: this.sample.entropy.slice(0, n),
      }, `zellige.${format}`);
      this.page.say(`saved as zellige.${format}`);
    } catch (error) { this.page.say(error.message, true); }
  }
}
