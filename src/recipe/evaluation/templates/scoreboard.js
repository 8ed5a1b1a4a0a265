const data = JSON.parse(document.getElementById("data").textContent);
const byId = new Map(data.examples.map((example, index) => [example.id, index]));
const $ = (id) => document.getElementById(id);
const views = { report: $("report"), examples: $("examples-view"), example: $("example-view") };
const PAGE = 100;
const defaults = { q: "", dataset: "", measure: "0", system: "", show: "all", sort: "file" };
const state = { ...defaults };
let view = "report";
let selected = data.examples.map((_, index) => index);
let drawn = 0;
let opened = null;

const element = (tag, props, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [key, rule] of Object.entries(value)) made.style.setProperty(key, rule);
    else made.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== "") made.append(child);
  return made;
};
const text = (tag, name, words) => element(tag, { class: name, dir: "auto" }, words);
const dot = (system) => element("span", { class: "dot", style: { background: `var(${data.colours[system]})` } });
const score = (value) => (value === null || value === undefined ? "–" : value.toFixed(1));
const address = (example) => `#/example/${encodeURIComponent(example.id)}`;

/* Scores of an example */

const known = (values) => values.filter((value) => value !== null && value !== undefined);
const meanOf = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
const measured = (example, system) =>
  meanOf(known(example.p.filter((plan) => plan.y === system).map((plan) => plan.m[state.measure])));
const everyone = data.systems.map((_, system) => system);
const scores = (example, systems) => known(systems.map((system) => measured(example, system)));
const mean = (example) => meanOf(scores(example, state.system === "" ? everyone : [Number(state.system)]));
const apart = (example) => {
  const values = scores(example, everyone);
  return values.length > 1 ? Math.max(...values) - Math.min(...values) : null;
};
const plansOf = (example) => example.p.filter((plan) => state.system === "" || plan.y === Number(state.system));
const shows = {
  all: ["all", () => true],
  unscored: ["unscored", (example) => plansOf(example).some((plan) => (plan.v || []).some((verdict) => !verdict.c && String(verdict.j) === state.measure))],
  empty: ["missing or empty plans", (example) => plansOf(example).some((plan) => !plan.t.length)],
  noted: ["shortened or otherwise noted", (example) => plansOf(example).some((plan) => (plan.n || []).length)],
  grounded: ["with narrations", (example) => plansOf(example).some((plan) => plan.x)],
};
const sorts = {
  file: ["order of the files", null],
  high: ["highest score", (example) => negative(mean(example))],
  low: ["lowest score", mean],
  apart: ["biggest difference", (example) => negative(apart(example))],
  goal: ["goal", (example) => example.g || ""],
};
const negative = (value) => (value === null ? null : -value);

/* The list */

const words = new Map();
const searched = (index) => {
  if (!words.has(index)) {
    const example = data.examples[index];
    const plans = example.p.flatMap((plan) => plan.t);
    words.set(index, [example.id, example.g, ...(example.h || []), ...(example.r || []), ...plans].join("\n").toLowerCase());
  }
  return words.get(index);
};
const select = () => {
  const wanted = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (shows[state.show] || shows.all)[1];
  selected = [];
  data.examples.forEach((example, index) => {
    if (state.dataset !== "" && (example.d || "") !== data.datasets[state.dataset]) return;
    if (fits(example) && wanted.every((word) => searched(index).includes(word))) selected.push(index);
  });
  const key = (sorts[state.sort] || sorts.file)[1];
  if (key) {
    const keys = new Map(selected.map((index) => [index, key(data.examples[index])]));
    selected.sort((index, other) => {
      const [first, second] = [keys.get(index), keys.get(other)];
      if (first === second) return index - other;
      if (first === null || second === null) return first === null ? 1 : -1;
      return first < second ? -1 : 1;
    });
  }
};
const row = (index) => {
  const example = data.examples[index];
  const planned = everyone.filter((system) => example.p.some((plan) => plan.y === system));
  const figures = planned.map((system) =>
    element("span", { title: data.systems[system] }, dot(system), score(measured(example, system))));
  return element("li", null, element("a", { href: address(example), "data-place": index },
    element("span", null, text("span", "goal", example.g || example.id), " ",
      text("span", "meta", [example.d, example.g ? example.id : ""].filter(Boolean).join(" · "))),
    element("span", { class: "scores" }, figures)));
};
const extend = () => {
  const rows = selected.slice(drawn, drawn + PAGE);
  $("list").append(...rows.map(row));
  drawn += rows.length;
  $("more").hidden = drawn >= selected.length;
};
const list = () => {
  select();
  drawn = 0;
  $("list").replaceChildren();
  extend();
  const measure = data.measures.length ? `, scores by ${data.measures[state.measure]}, percent` : "";
  $("count").textContent = `${selected.length.toLocaleString("en")} of ${data.examples.length.toLocaleString("en")} examples${measure}`;
};
const listAddress = () => {
  const query = new URLSearchParams(Object.entries(state).filter(([name, value]) => value !== defaults[name])).toString();
  return `#/examples${query ? `?${query}` : ""}`;
};
const fill = (name, options) => {
  const field = $("tools").elements[name];
  field.replaceChildren(...options.map(([value, label]) => element("option", { value }, label)));
  field.closest("label").hidden = options.length < 2;
};
const prepare = () => {
  $("who").replaceChildren(...everyone.map((system) => element("li", null, dot(system), text("bdi", null, data.systems[system]))));
  data.datasets = [...new Set(data.examples.map((example) => example.d || ""))];
  const counted = data.datasets.map((name, index) => [String(index), name || "not named"]);
  fill("dataset", counted.length > 1 ? [["", "all"], ...counted] : counted);
  fill("measure", data.measures.map((name, index) => [String(index), name]));
  fill("system", [["", "all"], ...data.systems.map((name, index) => [String(index), name])]);
  const any = (name) => name === "all" || name === "unscored" || data.examples.some(shows[name][1]);
  fill("show", Object.entries(shows).filter(([name]) => any(name)).map(([name, [label]]) => [name, label]));
  fill("sort", Object.entries(sorts).map(([name, [label]]) => [name, label]));
  $("tools").addEventListener("submit", (event) => event.preventDefault());
  $("tools").addEventListener("input", () => {
    for (const field of $("tools").elements) if (field.name) state[field.name] = field.value;
    history.replaceState(null, "", listAddress());
    list();
  });
  $("more").addEventListener("click", extend);
  new IntersectionObserver(([entry]) => entry.isIntersecting && view === "examples" && extend(), { rootMargin: "400px" }).observe($("more"));
};

/* One example */

const steps = (title, name, texts) => element("div", { class: name }, element("h3", null, title),
  texts && texts.length ? element("ol", null, texts.map((step) => text("li", null, step))) : text("p", "meta", "none"));
const marked = (plan) => element("ol", { class: "marked" }, plan.t.map((step, index) => {
  const status = (plan.st || [])[index] || "unknown";
  const [mark, meaning] = data.statuses[status] || [`${index + 1}.`, ""];
  return element("li", { class: status },
    element("span", { class: "mark", title: meaning || null, "aria-label": meaning ? `${status}: ${meaning}` : null, role: meaning ? "img" : null }, mark),
    text("span", null, step));
}));
const actions = (plan) => element("table", null,
  element("thead", null, element("tr", null, ["", "predicted", "reference", "margin"].map((name) => element("th", { scope: "col" }, name)))),
  element("tbody", null, plan.a.map(([predicted, gold, margin]) => {
    const right = predicted === gold;
    return element("tr", { class: right ? "right" : "wrong" },
      element("th", { scope: "row" }, element("span", { class: "mark", "aria-label": right ? "right" : "wrong", role: "img" }, right ? "✓" : "✕")),
      text("td", null, predicted === null ? "nothing" : predicted), text("td", null, gold),
      element("td", null, margin === null ? "–" : margin.toFixed(3)));
  })));
const verdictBox = (verdict) => {
  const repeat = verdict.e ? `, repeat ${verdict.e + 1}` : "";
  const box = element("div", { class: "verdict" });
  if (verdict.c) {
    const { n: criteria, s: [lowest, highest] } = data.rubrics[verdict.j];
    box.append(element("div", null, element("b", null, `${total(verdict)} of ${criteria.length * highest}`), ` by ${data.measures[verdict.j]}${repeat}`,
      verdict.o ? element("span", { class: "meta" }, ` · ${verdict.o}`) : null));
    box.append(element("dl", null, verdict.c.flatMap((value, index) => [
      element("dt", null, criteria[index]),
      element("dd", { "aria-hidden": "true" }, element("span", { class: "track" }, element("i", { style: { width: `${100 * (value - lowest) / (highest - lowest)}%` } }))),
      element("dd", null, String(value))])));
  } else {
    box.append(element("div", { class: "flag" }, element("b", null, "unscored"), ` by ${data.measures[verdict.j]}${repeat}: ${verdict.u}`));
  }
  if (verdict.x) box.append(element("details", null, element("summary", null, "the judge's answer"), text("pre", null, verdict.x)));
  return box;
};
const total = ({ c }) => (c ? String(Math.round(100 * c.reduce((sum, value) => sum + value, 0)) / 100) : "unscored");
const verdicts = (all) => {
  const judges = [...new Set(all.map((verdict) => verdict.j))];
  return judges.flatMap((judge) => {
    const [first, ...repeats] = all.filter((verdict) => verdict.j === judge);
    const summary = `${repeats.length} more by ${data.measures[judge]}: ${repeats.map(total).join(", ")}`;
    return [verdictBox(first), repeats.length ? element("details", null, element("summary", null, summary), repeats.map(verdictBox)) : null];
  });
};
const metrics = (values) => text("p", "meta", Object.entries(values).map(([name, value]) =>
  `${data.metrics[name] || name} ${value.toFixed(2)}`).join(" · "));
const card = (plan, several) => element("section", { class: "card", style: { "border-color": `var(${data.colours[plan.y]})` }, "aria-label": data.systems[plan.y] },
  element("header", null, element("h3", null, dot(plan.y), text("bdi", null, data.systems[plan.y]), several ? ` · sample ${plan.k || 0}` : ""),
    element("span", { class: "meta" }, data.measures.length > 1 ? "" : score(plan.m[0]))),
  (plan.n || []).map((note) => text("p", "flag", note)),
  plan.t.length ? marked(plan) : plan.a ? null : text("p", "meta", "no steps"),
  plan.a ? actions(plan) : null,
  plan.w ? text("p", "flag", `missing: ${plan.w.join("; ")}`) : null,
  plan.q ? metrics(plan.q) : null,
  verdicts(plan.v || []));
const grounds = (example) => {
  const grounded = example.p.filter((plan) => plan.x && $(plan.x));
  return grounded.length ? element("section", { class: "grounds" }, element("h3", null, "What grounds each plan in the corpus"),
    grounded.map((plan) => element("div", { class: "ground" },
      element("h4", null, dot(plan.y), text("bdi", null, data.systems[plan.y])), $(plan.x).content.cloneNode(true)))) : null;
};
const neighbour = (move) => {
  const at = selected.indexOf(opened);
  return at < 0 ? undefined : selected[at + move];
};
const step = (move, words) => {
  const next = neighbour(move);
  return next === undefined ? element("span", { class: "meta" }, words) : element("a", { href: address(data.examples[next]) }, words);
};
const show = (index) => {
  const example = data.examples[index];
  opened = index;
  const at = selected.indexOf(index);
  const count = new Map(), earliest = new Map();
  for (const plan of example.p) {
    count.set(plan.y, (count.get(plan.y) || 0) + 1);
    earliest.set(plan.y, Math.min(plan.k || 0, earliest.get(plan.y) ?? Infinity));
  }
  /* The first samples stand side by side, as they are what is judged. */
  const cards = (plans) => element("div", { class: "plans" }, plans.map((plan) => card(plan, count.get(plan.y) > 1)));
  const others = example.p.filter((plan) => (plan.k || 0) !== earliest.get(plan.y));
  const title = element("h2", { tabindex: "-1", dir: "auto" }, example.g || example.id);
  views.example.replaceChildren(
    element("nav", { class: "crumbs", "aria-label": "Examples" }, element("a", { href: listAddress() }, "← All examples"), step(-1, "Previous"), step(1, "Next"),
      at < 0 ? null : element("span", { class: "meta" }, `${(at + 1).toLocaleString("en")} of ${selected.length.toLocaleString("en")}`)),
    title,
    text("p", "meta", [example.d, example.s, example.id].filter(Boolean).join(" · ")),
    example.h || example.r ? element("div", { class: "context" }, steps("Done so far", "history", example.h), steps("Reference", "reference", example.r)) : "",
    example.p.some((plan) => plan.st) ? element("ul", { class: "legend" }, Object.entries(data.statuses).map(([name, [mark, meaning]]) =>
      element("li", { class: name }, element("span", { class: "mark" }, mark), ` ${meaning}`))) : "",
    cards(example.p.filter((plan) => !others.includes(plan))),
    others.length ? element("details", null, element("summary", null, `${others.length} further samples`), cards(others)) : "",
    grounds(example) || "");
  for (const picture of views.example.querySelectorAll(".picture")) bindPicture(picture);
  return title;
};

/* Where the reader is */

let left = 0;
const go = () => {
  const [path, query] = location.hash.split("?");
  const parts = path.split("/");
  const before = view;
  if (before === "examples") left = scrollY;
  let name = "report";
  if (data.examples.length && parts[1] === "examples") name = "examples";
  if (parts[1] === "example") {
    let id = null;
    try { id = decodeURIComponent(parts.slice(2).join("/")); } catch { id = null; }
    if (byId.has(id)) name = "example";
  }
  view = name;
  for (const [other, box] of Object.entries(views)) if (box) box.hidden = other !== name;
  for (const link of document.querySelectorAll("[data-to]")) {
    const here = link.dataset.to === name || (name === "example" && link.dataset.to === "examples");
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (name === "examples") {
    Object.assign(state, defaults, Object.fromEntries(new URLSearchParams(query || "")));
    for (const field of $("tools").elements) if (field.name) { field.value = state[field.name]; state[field.name] = field.value; }
    list();
    while (before === "example" && drawn < selected.length && selected.indexOf(opened) >= drawn) extend();
    const last = opened === null ? null : $("list").querySelector(`[data-place="${opened}"]`);
    if (before === "example") { scrollTo(0, left); if (last) last.focus(); } else scrollTo(0, 0);
  } else if (name === "example") {
    if (!drawn) select();
    const title = show(byId.get(decodeURIComponent(parts.slice(2).join("/"))));
    scrollTo(0, 0);
    title.focus({ preventScroll: true });
  } else if (before !== "report") {
    const target = location.hash.length > 1 && $(location.hash.slice(1));
    if (target) target.scrollIntoView(); else scrollTo(0, 0);
  }
};
const inList = (move) => {
  const links = [...$("list").querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (at + move >= links.length) { extend(); links.push(...[...$("list").querySelectorAll("a")].slice(links.length)); }
  const next = links[at < 0 ? 0 : Math.max(0, at + move)];
  if (next) next.focus();
};
const turn = (move) => {
  const next = neighbour(move);
  if (next !== undefined) location.hash = address(data.examples[next]);
};
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || !data.examples.length) return;
  const typing = event.target.closest("input, select, textarea");
  const move = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const vertical = event.key === "ArrowDown" || event.key === "ArrowUp";
  if (event.key === "Escape") {
    if (typing) { typing.blur(); return; }
    if (view === "example") location.hash = listAddress();
    else if (view === "examples") location.hash = "#report";
  } else if (typing) {
    if (typing.type === "search" && (event.key === "Enter" || event.key === "ArrowDown")) { typing.blur(); inList(1); event.preventDefault(); }
  } else if (event.key === "/") {
    if (view !== "examples") location.hash = listAddress();
    event.preventDefault();
    setTimeout(() => $("tools").elements.q.focus());
  } else if (move && view === "examples" && !event.key.match(/Left|Right/)) {
    event.preventDefault();
    inList(move);
  } else if (move && view === "example" && !vertical && !event.target.closest(".segment, .scroll")) {
    event.preventDefault();
    turn(move);
  }
});
if (data.examples.length) prepare();
addEventListener("hashchange", go);
go();
