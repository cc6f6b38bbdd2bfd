// Light or dark: the system's choice, or the person's.

/** Keeps the page's theme to the setting. */
export function followTheme(settings) {
  const apply = () => {
    const theme = settings.get("theme");
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  settings.addEventListener("change", ({ detail }) => detail.name === "theme" && apply());
  apply();
}
