"use strict";
// The slider walks over budgets that were simulated beforehand; without a script the table below it says the same.
(() => {
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.table")) details.open = true;
  });
  if (!document.getElementById("grid")) return; // budgets were not simulated
  const grid = JSON.parse(document.getElementById("grid").textContent);
  const slider = document.getElementById("rho-slider");
  const marker = document.getElementById("marker");
  const spent = document.getElementById("spent");
  const show = () => {
    const point = grid[Number(slider.value)];
    for (const key of ["rho", "epsilon", "attack", "cost", "gap"]) {
      document.getElementById(key).textContent = point[key];
    }
    marker.setAttribute("cx", point.x);
    marker.setAttribute("cy", point.y);
    slider.setAttribute("aria-valuetext", `rho ${point.rho}, predicted cost ${point.cost}`);
    spent.textContent = slider.value === slider.dataset.spent
      ? "This is the budget that was spent."
      : `The budget that was spent is ${grid[Number(slider.dataset.spent)].rho}.`;
  };
  slider.addEventListener("input", show);
  show(); // a browser may have kept the slider where somebody left it
})();
