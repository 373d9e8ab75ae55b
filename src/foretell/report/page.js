// Hover, keyboard, theme and saving of figures. Without it the page shows all the same.
(function () {
  "use strict";
  var tip = document.getElementById("tip");
  function show(mark, x, y) {
    tip.textContent = mark.getAttribute("aria-label");
    tip.style.opacity = 1;
    var box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
  }
  function hide() { tip.style.opacity = 0; }
  // Listeners are on the document: what is drawn later needs none of its own.
  function markOf(event) { return event.target.closest ? event.target.closest(".mark") : null; }
  document.addEventListener("mousemove", function (event) {
    var mark = markOf(event);
    if (mark) show(mark, event.clientX, event.clientY); else if (!markOf({ target: document.activeElement })) hide();
  });
  document.addEventListener("focusin", function (event) {
    var mark = markOf(event);
    if (!mark) return hide();
    var box = mark.getBoundingClientRect();
    show(mark, box.left + box.width / 2, box.bottom - 8);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", function (event) {
    var mark = markOf(event);
    if (!mark) return;
    if (event.key === "Escape") hide();
    var marks = Array.from(mark.closest("svg").querySelectorAll(".mark"));
    var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    var next = { Home: 0, End: marks.length - 1 }[event.key];
    next = next === undefined ? (step ? marks.indexOf(mark) + step : -1) : next;
    if (!marks[next]) return;
    event.preventDefault();
    mark.setAttribute("tabindex", "-1");
    marks[next].setAttribute("tabindex", "0");
    marks[next].focus();
  });
  // One mark of each chart can be reached with Tab, the others from it with arrows.
  function prepare(root) {
    root.querySelectorAll("svg.chart").forEach(function (svg) {
      var first = svg.querySelector(".mark");
      if (!first) return;
      first.setAttribute("tabindex", "0");
      svg.setAttribute("role", "group");
    });
  }
  prepare(document);
  window.foretellPrepare = prepare;
  document.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-save]");
    if (!button) return;
    var svg = button.closest("figure").querySelector("svg").cloneNode(true);
    var style = document.createElementNS("http://www.w3.org/2000/svg", "style");
    style.textContent = document.getElementById("figure-style").textContent;
    svg.insertBefore(style, svg.firstChild);
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([svg.outerHTML], { type: "image/svg+xml" }));
    link.download = button.dataset.save + ".svg";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  var theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", function () {
    var root = document.documentElement;
    var dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    theme.setAttribute("aria-pressed", String(!dark));
  });
})();
