// Rules for all JavaScript: those that ESLint recommends, and those that catch mistakes. No rule checks the layout.

import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/node_modules/"] },
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  js.configs.recommended,
  {
    rules: {
      "array-callback-return": ["error", { checkForEach: false }],
      eqeqeq: "error",
      "no-constructor-return": "error",
      "no-duplicate-imports": "error",
      "no-eval": "error",
      "no-implicit-globals": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-self-compare": "error",
      "no-template-curly-in-string": "error",
      "no-throw-literal": "error",
      "no-unmodified-loop-condition": "error",
      "no-unreachable-loop": "error",
      "no-unused-vars": ["error", { args: "all", argsIgnorePattern: "^_", caughtErrors: "all", ignoreRestSiblings: true }],
      "no-useless-return": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-promise-reject-errors": "error",
      radix: "error",
      "require-atomic-updates": "error",
    },
  },
  { files: ["web/*.js", "target/lint/**/*.js"], languageOptions: { globals: globals.browser } },
  { files: ["web/capture_worklet.js"], languageOptions: { globals: globals.audioWorklet } },
  {
    // These run in Node and have functions that run in the page.
    files: ["tests/**/*.mjs"],
    languageOptions: { globals: { ...globals.node, ...globals.browser } },
  },
  {
    // Globals of the page that these tests make; tests/browser/page_globals.d.ts has their types.
    files: ["tests/browser/*.mjs"],
    languageOptions: { globals: { axe: "readonly", clock: "readonly", standin: "readonly", watched: "readonly" } },
  },
  { files: ["tests/browser/standin.js"], languageOptions: { sourceType: "script", globals: globals.browser } },
  { files: ["scripts/lint/*.js"], languageOptions: { globals: globals.node } },
];
