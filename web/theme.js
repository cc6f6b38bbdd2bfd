// Theme: light or dark, by the system or by the setting.

/** @import { Settings } from "./settings.js" */

/** Applies the setting to the page's theme. @param {Settings} settings */
export function followTheme(settings) {
  const apply = () => {
    const theme = settings.get("theme");
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  settings.addEventListener("change", ({ detail }) => detail.name === "theme" && apply());
  apply();
}
