"use strict";
// The numbers of a picture at the pointer, at a finger, or at the arrow keys. Words of users are
// only ever set as text.
(() => {
  const { runs, scales } = JSON.parse(document.getElementById("data").textContent);
  const svgElement = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const told = (value) => {
    const short = Math.abs(value) >= 10000
      ? value.toLocaleString("en", { maximumFractionDigits: 0 })
      : String(Number(value.toPrecision(4)));
    return short.replace("-", "\u2212");
  };
  const column = (run, name) =>
    (name === "step" ? run.steps : run.series[name]) || [];

  // the measured points of every line, in data and in picture coordinates
  const pointsOf = (scale) => scale.lines.map((line) => {
    const run = runs[line.run];
    const [xs, ys] = [column(run, scale.across), column(run, line.column)];
    const spread = line.spread ? column(run, line.spread) : [];
    const points = [];
    xs.forEach((x, i) => {
      if (x === null || ys[i] === null || ys[i] === undefined) return;
      const height = scale.log ? Math.log10(ys[i]) : ys[i];
      points.push({
        x, y: ys[i], at: scale.along ? x : run.steps[i], spread: spread[i],
        left: scale.x[0] + scale.x[1] * x,
        top: Math.min(scale.box[3], line.y[0] + line.y[1] * height),
      });
    });
    return { ...line, points };
  });
  const nearest = (points, distance) =>
    points.reduce((best, point) => (distance(point) < distance(best) ? point : best));

  const watch = (plot) => {
    const scale = scales[plot.dataset.picture];
    const picture = plot.querySelector("svg");
    const unit = scale.along ? scale.across : "step";
    const lines = pointsOf(scale);
    const places = [...new Set(lines.flatMap((line) => line.points.map((p) => p.at)))]
      .sort((a, b) => a - b);
    const cursor = svgElement("g", { class: "cursor" });
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    plot.append(tip);
    let at = places.length - 1;

    const hide = () => { cursor.remove(); tip.classList.remove("on"); };
    const row = (line, point, where) => {
      const entry = document.createElement("div");
      const swatch = document.createElement("i");
      swatch.style.background = runs[line.run].colour;
      const label = document.createElement("span");
      label.textContent = [runs.length > 1 ? runs[line.run].name : "", line.name]
        .filter(Boolean).join(" ") || "value";
      const value = document.createElement("b");
      const pair = scale.along ? told(point.y) : `${told(point.x)}, ${told(point.y)}`;
      const spread = point.spread === undefined || point.spread === null
        ? "" : ` \u00b1 ${told(point.spread)}`;
      value.textContent = pair + spread + (point.at === where ? "" : ` (at ${told(point.at)})`);
      entry.append(swatch, label, value);
      return entry;
    };
    const show = (chosen, where) => {
      const [left, top, right, bottom] = scale.box;
      cursor.replaceChildren();
      if (scale.along) {
        const x = scale.x[0] + scale.x[1] * where;
        cursor.append(svgElement("line", { x1: x, x2: x, y1: top, y2: bottom }));
      }
      for (const { line, point } of chosen) {
        const fill = runs[line.run].colour;
        cursor.append(svgElement("circle", { cx: point.left, cy: point.top, r: 4, fill }));
      }
      picture.append(cursor);
      const heading = document.createElement("em");
      heading.textContent = `${unit} ${told(where)}`;
      tip.replaceChildren(heading, ...chosen.map(({ line, point }) => row(line, point, where)));
      tip.classList.add("on");
      const zoom = picture.clientWidth / picture.viewBox.baseVal.width;
      const x = chosen.reduce((sum, { point }) => sum + point.left, 0) / chosen.length * zoom;
      const room = plot.clientWidth - tip.offsetWidth;
      const beside = x > plot.clientWidth / 2 ? x - tip.offsetWidth - 12 : x + 12;
      tip.style.left = `${Math.max(0, Math.min(room, beside))}px`;
      tip.style.top = `${picture.clientHeight}px`; // below: the picture stays in sight
    };
    const showAt = (where) => {
      at = places.indexOf(where);
      const chosen = lines.map((line) => ({
        line, point: nearest(line.points, (p) => Math.abs(p.at - where)),
      }));
      show(chosen, where);
    };
    const move = (event) => {
      const box = picture.getBoundingClientRect();
      const zoom = box.width / picture.viewBox.baseVal.width;
      const [x, y] = [(event.clientX - box.left) / zoom, (event.clientY - box.top) / zoom];
      const all = lines.flatMap((line) => line.points.map((point) => ({ line, point })));
      if (scale.along) showAt(nearest(all, (a) => Math.abs(a.point.left - x)).point.at);
      else {
        const near = nearest(all, (a) => Math.hypot(a.point.left - x, a.point.top - y));
        at = places.indexOf(near.point.at);
        show([near], near.point.at);
      }
    };
    const keys = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 };
    plot.addEventListener("pointermove", move);
    plot.addEventListener("pointerdown", move);
    // what a finger has asked for stays until it asks for something else
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    document.addEventListener("pointerdown", (event) => { if (!plot.contains(event.target)) hide(); });
    plot.addEventListener("blur", hide);
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) showAt(places[at]); });
    plot.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      if (!(event.key in keys)) return;
      event.preventDefault();
      showAt(places[Math.max(0, Math.min(places.length - 1, at + keys[event.key]))]);
    });
  };
  document.querySelectorAll(".plot").forEach(watch);
})();
