// Hover, keyboard, theme and saving of figures. Without it the page shows all the same.
(function () {
  "use strict";
  var tip = document.getElementById("tip");
  function show(mark, x, y) {
    tip.textContent = mark.dataset.tip;
    tip.style.opacity = 1;
    var box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
  }
  function hide() { tip.style.opacity = 0; }
  document.querySelectorAll("svg.chart").forEach(function (svg) {
    var marks = Array.from(svg.querySelectorAll(".mark"));
    if (!marks.length) return;
    marks[0].setAttribute("tabindex", "0");
    svg.setAttribute("role", "group");
    marks.forEach(function (mark, at) {
      mark.addEventListener("mousemove", function (event) { show(mark, event.clientX, event.clientY); });
      mark.addEventListener("mouseleave", hide);
      mark.addEventListener("blur", hide);
      mark.addEventListener("focus", function () {
        var box = mark.getBoundingClientRect();
        show(mark, box.left + box.width / 2, box.bottom - 8);
      });
      mark.addEventListener("keydown", function (event) {
        var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        var next = event.key === "Home" ? 0 : event.key === "End" ? marks.length - 1 : step ? at + step : -1;
        if (event.key === "Escape") hide();
        if (!marks[next]) return;
        event.preventDefault();
        mark.setAttribute("tabindex", "-1");
        marks[next].setAttribute("tabindex", "0");
        marks[next].focus();
      });
    });
  });
  document.querySelectorAll("button[data-save]").forEach(function (button) {
    button.addEventListener("click", function () {
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
