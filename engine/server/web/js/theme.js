// Light or dark. A plain script that runs before the page is drawn, so that a dark page does not flash white.
// The choice is "auto" (as the system has it), "light" or "dark".
"use strict";

window.strataTheme = {
  get() {
    try {
      const kept = localStorage.getItem("strata.theme");
      return kept === "light" || kept === "dark" ? kept : "auto";
    } catch {
      return "auto";
    }
  },
  set(choice) {
    try {
      localStorage.setItem("strata.theme", choice);
    } catch {
      // Not kept, but shown.
    }
    this.show(choice);
  },
  show(choice) {
    document.documentElement.dataset.theme = choice;
  },
};
window.strataTheme.show(window.strataTheme.get());
