// Functions to try function calls: a clock and a dice, which run in this page, and functions of the user with a fixed result.

/** @import { FunctionCallOutput, FunctionTool, ServerFunctionCall } from "./types/events.js" */

/**
 * Function that the user has written.
 *
 * @typedef {{ name: string, description: string, parameters: unknown, result: string }} OwnTool
 */

/** @type {Record<"clock" | "dice", { tool: FunctionTool, run: (given: { sides?: unknown }) => string }>} */
const FUNCTIONS = {
  clock: {
    tool: {
      type: "function",
      name: "get_time",
      description: "The date and the time of day where the caller is.",
      parameters: { type: "object", properties: {}, required: [] },
    },
    run: () => new Date().toLocaleString("en", { dateStyle: "full", timeStyle: "short" }),
  },
  dice: {
    tool: {
      type: "function",
      name: "roll_dice",
      description: "Rolls one dice.",
      parameters: {
        type: "object",
        properties: { sides: { type: "integer", description: "Number of sides; 6 by default." } },
        required: [],
      },
    },
    run: ({ sides }) => {
      const faces = Math.min(1000, Math.max(2, Math.trunc(Number(sides)) || 6));
      return String(1 + Math.floor(Math.random() * faces));
    },
  },
};

/**
 * Returns the tools of a session with these functions.
 *
 * @param {(keyof typeof FUNCTIONS)[]} names
 * @param {OwnTool[]} own
 * @returns {FunctionTool[]}
 */
export function tools(names, own) {
  const written = own.map(({ name, description, parameters }) => ({ type: /** @type {const} */ ("function"), name, description, parameters }));
  return [...names.map((name) => FUNCTIONS[name].tool), ...written];
}

/** Reads functions of the user; empty for another text. @param {string} text JSON @returns {OwnTool[]} */
export function readOwnTools(text) {
  try {
    const list = JSON.parse(text);
    return Array.isArray(list) ? list.filter((tool) => typeof tool?.name === "string" && typeof tool.result === "string") : [];
  } catch {
    return [];
  }
}

/**
 * Returns the output item of a `function_call` item; its result is text for the model, also for an unknown function.
 *
 * @param {ServerFunctionCall} item
 * @param {OwnTool[]} own
 * @returns {FunctionCallOutput}
 */
export function answer({ name, arguments: given, call_id: call }, own) {
  const written = own.find((tool) => tool.name === name);
  return { type: "function_call_output", call_id: call, output: written?.result ?? run(name, given) };
}

/**
 * @param {string} name
 * @param {string} given arguments as JSON text
 */
function run(name, given) {
  const known = Object.values(FUNCTIONS).find(({ tool }) => tool.name === name);
  if (!known) return `There is no function ${name}.`;
  try {
    return known.run(JSON.parse(given || "{}") ?? {});
  } catch {
    return "The arguments are not JSON.";
  }
}
