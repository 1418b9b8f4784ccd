"use strict";
// The table of levels, drawn from the numbers in the page. A row is a product, or a value of a label; the other axes
// are picked. Without a script the page names the file that has them.
(() => {
  const SOME_ROWS = 100, MANY_STEPS = 8, NUMBERED_BARS = 14;
  const data = JSON.parse(document.getElementById("levels-data").textContent);
  const { axes, steps, digits, costs } = data;
  const products = axes[axes.length - 1];
  const byId = (id) => document.getElementById(id);

  // Numbers: two bytes each, little end first, in units of the product's last decimal.
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const numbers = (text) => {
    const view = new DataView(bytes(text).buffer);
    return Uint16Array.from({ length: view.byteLength / 2 }, (_, i) => view.getUint16(2 * i, true));
  };
  const [levels, low, high, tried] = [data.levels, data.low, data.high, data.tried].map(numbers);
  const marks = bytes(data.marks);
  const amount = (stored, product) => stored / 10 ** digits[product];
  const formats = new Map();
  const shown = (value, places) => {
    if (!formats.has(places)) {
      formats.set(places, new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places }));
    }
    return formats.get(places).format(value);
  };
  const exact = (stored, product) => shown(amount(stored, product), Math.max(0, digits[product]));
  const short = (stored, product) => {
    const value = amount(stored, product);
    return shown(value, value >= 100 ? 0 : Math.max(0, digits[product]));
  };
  const cost = (value) => value === null ? "–" : shown(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
  const share = (value) => value === null ? "–" : `${shown(100 * value, 0)}%`;

  const state = { rows: data.rows, picked: axes.map(() => 0), words: "", sort: "given", up: true, all: false };
  const open = new Set(axes[data.rows].values.length > 1 ? [] : [0]); // rows whose picture is open

  // Where the numbers of a row and step stand.
  const picksOf = (row) => state.picked.map((value, axis) => axis === state.rows ? row : value);
  const place = (picks, step) => {
    const cell = axes.slice(0, -1).reduce((number, axis, i) => number * axis.values.length + picks[i], 0);
    return (cell * steps.length + step) * products.values.length + picks[picks.length - 1];
  };

  // Elements. Text is always set as text, so that a name can never become markup.
  const SVG = "http://www.w3.org/2000/svg";
  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const options = (select, entries, chosen) => {
    select.replaceChildren(...entries.map(([value, words]) => html("option", { value }, words)));
    select.value = chosen;
  };

  // Pictures.
  const sparkline = (row) => {
    const [width, height] = [96, 26], most = Math.max(...row.levels, 1), slot = width / steps.length;
    const bars = row.levels.map((level, step) => {
      const top = height - level / most * (height - 2);
      return `M${(step * slot + 0.1 * slot).toFixed(1)} ${height}V${top.toFixed(1)}h${(0.8 * slot).toFixed(1)}V${height}`;
    });
    const words = steps.map((step, i) => `${step} ${short(row.levels[i], row.product)}`).join(", ");
    const box = { viewBox: `0 0 ${width} ${height}`, class: "spark", role: "img", "aria-label": words };
    return svg("svg", box, svg("path", { class: "bar", d: bars.join("") }));
  };
  const roundStep = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
  };
  const at = (values, row, step) => amount(values[place(row.picks, step)], row.product);
  const axisOf = (row) => {
    const most = Math.max(...[levels, high].flatMap((each) => steps.map((_, step) => at(each, row, step))));
    const tick = roundStep(Math.max(most, 1e-9) / 4);
    return [tick, Math.ceil(most / tick - 1e-9) * tick * 1.08];
  };
  const hasLine = (row, step) => at(tried, row, step) < axisOf(row)[1]; // how far orders were tried
  const chart = (row, id) => {
    const [width, height, left, right, upper, bottom] = [480, 250, 58, 14, 14, 46];
    const [tick, top] = axisOf(row);
    const y = (value) => height - bottom - value / top * (height - bottom - upper);
    const slot = (width - left - right) / steps.length, bar = Math.min(0.62 * slot, 46);
    const words = (x, line, text, kind) => svg("text", { x: x.toFixed(1), y: line.toFixed(1), class: kind }, text);
    const body = [];
    for (let value = 0; value <= top; value += tick) {
      body.push(svg("path", { class: "grid", d: `M${left} ${y(value).toFixed(1)}H${width - right}` }));
      body.push(words(left - 7, y(value) + 4, shown(value, Math.max(0, -Math.floor(Math.log10(tick)))), "end quiet"));
    }
    steps.forEach((name, step) => {
      const middle = left + (step + 0.5) * slot, head = y(at(levels, row, step));
      const size = { x: (middle - bar / 2).toFixed(1), y: head.toFixed(1), width: bar.toFixed(1) };
      body.push(svg("rect", { class: "bar", ...size, height: (y(0) - head).toFixed(1) }));
      const [from, to] = [y(at(low, row, step)), y(at(high, row, step))].map((line) => line.toFixed(1));
      const end = (line) => `M${(middle - 5).toFixed(1)} ${line}h10`;
      body.push(svg("path", { class: "whisker", d: `M${middle.toFixed(1)} ${from}V${to}${end(from)}${end(to)}` }));
      if (hasLine(row, step)) {
        const line = y(at(tried, row, step)).toFixed(1);
        body.push(svg("path", { class: "limit", d: `M${(middle - slot / 2).toFixed(1)} ${line}h${slot.toFixed(1)}` }));
      }
      if (steps.length <= NUMBERED_BARS) {
        body.push(words(middle, height - bottom + 36, short(row.levels[step], row.product), "value middle"));
      }
      if (step % Math.ceil(steps.length / NUMBERED_BARS) === 0) {
        body.push(words(middle, height - bottom + 18, name, "middle"));
      }
    });
    const said = steps.map((name, step) => `${name} ${exact(row.levels[step], row.product)}`).join(", ");
    const named = { role: "img", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-words` };
    return svg("svg", { viewBox: `0 0 ${width} ${height}`, ...named },
      svg("title", { id: `${id}-title` }, `Levels of ${row.title}`), svg("desc", { id: `${id}-words` }, said), ...body);
  };

  // Words about a level: 1 past orders seldom went as far, 2 they were never let go further.
  const NOTES = ["", "we seldom tried ordering this much", "we never tried ordering more than this"];
  const marked = (row, mark) => steps.filter((_, step) => marks[place(row.picks, step)] === mark);
  const days = (names) => names.length === steps.length ? "always" : names.length > 3
    ? `${names.length} of ${steps.length}` : names.join(", ");
  const notes = (row) => [[2, "never tried more"], [1, "seldom tried this much"]]
    .map(([mark, words]) => [words, marked(row, mark)]).filter(([, names]) => names.length)
    .map(([words, names]) => `${words} (${days(names)})`).join("; ");

  const detail = (row, id) => {
    const lines = steps.map((name, step) => {
      const where = place(row.picks, step);
      const demand = html("td", {}, `${exact(low[where], row.product)} to ${exact(high[where], row.product)}`);
      return html("tr", {}, html("th", { scope: "row" }, name), html("td", {}, exact(row.levels[step], row.product)),
        demand, html("td", {}, NOTES[marks[where]]));
    });
    const head = ["", "fill up to", "demand, 8 days of 10", ""];
    const legend = ["The bar is the level. The thin line is the demand on eight days out of ten."];
    if (steps.some((_, step) => hasLine(row, step))) legend.push("We seldom ordered more than the dashed line.");
    const text = data.scale ? `In multiples of ${data.scale}.` : "";
    return html("div", { class: "detail" },
      html("figure", {}, chart(row, id), html("p", { class: "quiet" }, `${legend.join(" ")} ${text}`)),
      html("table", {}, html("caption", {}, `Levels of ${row.title}`),
        html("thead", {}, html("tr", {}, ...head.map((each) => html("th", { scope: "col" }, each)))),
        html("tbody", {}, ...lines)));
  };

  // Columns: what they are called, what they show, and by which number they sort. Large numbers come first.
  const columns = () => {
    const found = [{ key: "name", words: axes[state.rows].name, value: (row) => row.folded }];
    if (steps.length <= MANY_STEPS) {
      steps.forEach((step, i) => found.push({
        key: `step ${i}`, words: step, kind: "wide", value: (row) => amount(row.levels[i], row.product),
        text: (row) => short(row.levels[i], row.product),
      }));
    }
    const least = (row) => Math.min(...row.levels), most = (row) => Math.max(...row.levels);
    found.push({
      key: "most", words: "from – to", kind: steps.length <= MANY_STEPS ? "narrow range" : "range",
      value: (row) => amount(most(row), row.product),
      text: (row) => least(row) === most(row) ? short(most(row), row.product)
        : `${short(least(row), row.product)} – ${short(most(row), row.product)}`,
    });
    if (state.rows !== axes.length - 1) return found;
    // Costs are known for a product as a whole, not for the shop that was picked.
    const own = [["today’s cost", cost], ["new cost", cost], ["sells out", share]];
    own.forEach(([name, text], i) => {
      if (costs.every((each) => each[i] === null)) return;
      const words = axes.length > 1 ? `${name} (average)` : name;
      const value = (row) => costs[row.index][i] ?? -1;
      found.push({ key: words, words, kind: "wide", value, text: (row) => text(costs[row.index][i]) });
    });
    return found;
  };

  const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const chosenRows = () => {
    const wanted = fold(state.words.trim());
    const rows = axes[state.rows].values.map((name, index) => ({ name, index, folded: fold(name) }))
      .filter((row) => row.folded.includes(wanted));
    for (const row of rows) {
      row.picks = picksOf(row.index);
      row.product = row.picks[row.picks.length - 1];
      row.title = axes.filter((axis) => axis.values.length > 1 || axes.length === 1)
        .map((axis) => `${axis === products ? "" : `${axis.name} `}${axis.values[row.picks[axes.indexOf(axis)]]}`).join(", ");
      row.levels = steps.map((_, step) => levels[place(row.picks, step)]);
    }
    const column = columns().find((each) => each.key === state.sort);
    if (!column) return rows;
    const sign = state.up ? 1 : -1;
    const compare = column.key === "name"
      ? (a, b) => a.folded.localeCompare(b.folded, "en", { numeric: true }) : (a, b) => column.value(a) - column.value(b);
    return rows.sort((a, b) => sign * compare(a, b) || a.index - b.index);
  };

  const sortBy = (key, up) => {
    Object.assign(state, { sort: key, up });
    draw();
  };
  const heading = (column) => {
    const sorted = state.sort === column.key;
    const button = html("button", { type: "button", class: "sort", "data-key": column.key }, column.words);
    button.addEventListener("click", () => {
      sortBy(column.key, sorted ? !state.up : column.key === "name");
      [...document.querySelectorAll("button.sort")].find((each) => each.dataset.key === column.key).focus();
    });
    const order = sorted ? { "aria-sort": state.up ? "ascending" : "descending" } : {};
    return html("th", { scope: "col", class: column.kind ?? "", ...order }, button);
  };
  const drawRow = (row, shownColumns, width) => {
    const id = `row-${row.index}`, isOpen = open.has(row.index);
    const button = html("button", { type: "button", class: "name", "aria-expanded": isOpen }, row.name);
    const note = notes(row);
    const first = html("th", { scope: "row" }, button, ...(note ? [html("span", { class: "note" }, note)] : []));
    const cells = shownColumns.slice(1).map((column) => html("td", { class: column.kind ?? "" }, column.text(row)));
    const line = html("tr", { id }, first, html("td", { class: "picture" }, sparkline(row)), ...cells);
    const unfold = () => {
      const below = html("tr", { class: "unfolded", id: `${id}-detail` },
        html("td", { colspan: width }, detail(row, id)));
      line.after(below);
      button.setAttribute("aria-controls", below.id);
    };
    button.addEventListener("click", () => {
      if (open.delete(row.index)) {
        byId(`${id}-detail`).remove();
        button.removeAttribute("aria-controls");
      } else {
        open.add(row.index);
        unfold();
      }
      button.setAttribute("aria-expanded", open.has(row.index));
    });
    return [line, unfold, isOpen];
  };

  const draw = () => {
    const rows = chosenRows(), drawn = state.all ? rows : rows.slice(0, SOME_ROWS), shownColumns = columns();
    const [first, ...others] = shownColumns.map(heading), body = html("tbody");
    for (const row of drawn) {
      const [line, unfold, isOpen] = drawRow(row, shownColumns, shownColumns.length + 1);
      body.append(line);
      if (isOpen) unfold();
    }
    const head = html("tr", {}, first, html("th", { scope: "col" }, `${steps[0]} – ${steps[steps.length - 1]}`), ...others);
    const table = html("table", { class: "levels" }, html("caption", { class: "unseen" }, "Order-up-to levels"),
      html("thead", {}, head), body);
    byId("table").replaceChildren(table);
    const all = axes[state.rows].values.length.toLocaleString("en");
    byId("count").textContent = state.words.trim() ? `${rows.length.toLocaleString("en")} of ${all} found` : `${all} rows`;
    byId("more").textContent = `Show all ${rows.length.toLocaleString("en")} rows`;
    byId("more-field").hidden = drawn.length === rows.length;
    const sorts = [["given", "the given order"], ...shownColumns.map((each) => [each.key, each.words])];
    options(byId("sort"), sorts, state.sort);
  };

  // Controls: which axis makes the rows, and one value of every other axis.
  const drawPickers = () => {
    byId("pickers").replaceChildren(...axes.flatMap((axis, number) => {
      if (number === state.rows || axis.values.length < 2) return [];
      const select = html("select", { id: `pick-${number}` });
      options(select, axis.values.map((value, i) => [i, value]), state.picked[number]);
      select.addEventListener("change", () => {
        state.picked[number] = Number(select.value);
        draw();
      });
      return [html("label", {}, `${axis.name} `, select)];
    }));
  };
  const choices = axes.map((axis, number) => [number, axis.name]).filter(([number]) => axes[number].values.length > 1);
  options(byId("rows"), choices, state.rows);
  byId("rows-field").hidden = choices.length < 2;
  byId("rows").addEventListener("change", (event) => {
    Object.assign(state, { rows: Number(event.target.value), words: "", sort: "given", up: true, all: false });
    open.clear();
    byId("search").value = "";
    drawPickers();
    draw();
  });
  byId("search").addEventListener("input", (event) => {
    state.words = event.target.value;
    draw();
  });
  byId("sort").addEventListener("change", (event) => sortBy(event.target.value, event.target.value === "name"));
  byId("more").addEventListener("click", () => {
    state.all = true;
    draw();
    byId("table").querySelectorAll("button.name")[SOME_ROWS].focus();
  });

  // The CSV file is made here: nothing is asked for, and nothing is sent.
  const field = (text) => {
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csv = () => {
    const [labels, names] = [axes.slice(0, -1), products.values.map(field)], days = steps.map(field);
    const lines = [[...labels.map((axis) => field(axis.name)), "product", "step", "level"].join(",")];
    const cells = labels.reduce((found, axis) => found.flatMap((start) =>
      axis.values.map((value, i) => ({ text: `${start.text}${field(value)},`, picks: [...start.picks, i] }))),
    [{ text: "", picks: [] }]);
    for (const { text, picks } of cells) {
      names.forEach((name, product) => days.forEach((day, step) => {
        const stored = levels[place([...picks, product], step)];
        lines.push(`${text}${name},${day},${amount(stored, product).toFixed(Math.max(0, digits[product]))}`);
      }));
    }
    return `\ufeff${lines.join("\r\n")}\r\n`;
  };
  byId("download")?.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([csv()], { type: "text/csv;charset=utf-8" }));
    html("a", { href: address, download: "levels.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  });

  window.addEventListener("beforeprint", () => {
    state.all = true;
    draw();
  });
  byId("controls").hidden = byId("how").hidden = false;
  drawPickers();
  draw();
})();
