// The structure of a molecule as a drawing: atoms placed so that their distances fit those along the bonds (stress majorization).

const NEAR = [0, 1, 1.73, 2.5]; // distance of atoms that are so many bonds apart, in bond lengths

function apart(n, bonds) {
  const d = Array.from({length: n}, (_, i) => Array.from({length: n}, (_, j) => i === j ? 0 : n));
  for (const [i, j] of bonds) d[i][j] = d[j][i] = 1;
  for (let k = 0; k < n; k++) for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) d[i][j] = Math.min(d[i][j], d[i][k] + d[k][j]);
  return d.map(row => row.map(steps => NEAR[steps] ?? 0.85 * steps));
}

// positions from one start; and how badly they fit
function settle(d, start) {
  const n = d.length;
  let at = start;
  for (let round = 0; round < 200; round++) at = at.map(([x, y], i) => {
    let sx = 0, sy = 0, sum = 0;
    for (let j = 0; j < n; j++) if (j !== i) {
      const w = d[i][j] ** -2, dx = x - at[j][0], dy = y - at[j][1], length = Math.hypot(dx, dy) || 1e-6;
      sx += w * (at[j][0] + d[i][j] * dx / length);
      sy += w * (at[j][1] + d[i][j] * dy / length);
      sum += w;
    }
    return sum ? [sx / sum, sy / sum] : [x, y];
  });
  let stress = 0;
  for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) stress += (Math.hypot(at[i][0] - at[j][0], at[i][1] - at[j][1]) / d[i][j] - 1) ** 2;
  return {at, stress};
}

export function layout(n, bonds) {
  const d = apart(n, bonds);
  const circle = turn => Array.from({length: n}, (_, i) => [Math.cos(i * turn) * (1 + i / n), Math.sin(i * turn) * (1 + i / n)]);
  const tried = [2 * Math.PI / n, 2.4, 1, 0.5, 3.9].map(turn => settle(d, circle(turn)));
  return tried.reduce((a, b) => b.stress < a.stress ? b : a).at;
}

export function drawMolecule(svg, atoms, bonds) {
  const at = layout(atoms.length, bonds), xs = at.map(p => p[0]), ys = at.map(p => p[1]);
  const [left, top] = [Math.min(...xs) - 0.7, Math.min(...ys) - 0.7], [wide, high] = [Math.max(...xs) + 0.7 - left, Math.max(...ys) + 0.7 - top];
  svg.setAttribute("viewBox", `${left} ${top} ${wide} ${high}`);
  const make = (tag, more) => {
    const element = document.createElementNS(svg.namespaceURI, tag);
    for (const [name, value] of Object.entries(more)) element.setAttribute(name, value);
    return element;
  };
  const lines = bonds.flatMap(([i, j, order]) => {
    const [dx, dy] = [at[j][0] - at[i][0], at[j][1] - at[i][1]], length = Math.hypot(dx, dy) || 1;
    return Array.from({length: order}, (_, k) => {
      const by = (k - (order - 1) / 2) * 0.16, [ox, oy] = [-dy / length * by, dx / length * by];
      return make("line", {x1: at[i][0] + ox, y1: at[i][1] + oy, x2: at[j][0] + ox, y2: at[j][1] + oy, class: "bond"});
    });
  });
  const names = atoms.flatMap((element, i) => {
    if (element === "C" && atoms.length > 1) return [];
    const letter = make("text", {x: at[i][0], y: at[i][1], class: `atom ${element}`});
    letter.textContent = element;
    return [make("circle", {cx: at[i][0], cy: at[i][1], r: 0.28, class: "behind"}), letter];
  });
  svg.replaceChildren(...lines, ...names);
}

// the drawing as a file of its own, in the colours of the light page
export function asDrawing(svg) {
  const copy = svg.cloneNode(true), style = document.createElementNS(svg.namespaceURI, "style");
  style.textContent = ".bond { stroke: #1b1f24; stroke-width: .06; stroke-linecap: round } .behind { fill: #fff } .atom { font: 700 .42px sans-serif; "
    + "text-anchor: middle; dominant-baseline: central; fill: #1b1f24 } .O { fill: #a83a00 } .N { fill: #00599c } .F { fill: #00694c }";
  const [left, top, wide, high] = svg.getAttribute("viewBox").split(" ");
  const ground = document.createElementNS(svg.namespaceURI, "rect");
  for (const [name, value] of Object.entries({x: left, y: top, width: wide, height: high, fill: "#fff"})) ground.setAttribute(name, value);
  for (const name of ["class", "data-part", "role", "aria-label"]) copy.removeAttribute(name);
  copy.setAttribute("width", 60 * wide);
  copy.setAttribute("height", 60 * high);
  copy.prepend(style, ground);
  return new XMLSerializer().serializeToString(copy);
}
