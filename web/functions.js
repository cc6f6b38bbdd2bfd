// Two functions to try function calls: a clock and a dice. Both run in this page.

/** @import { FunctionCallOutput, FunctionTool, ServerFunctionCall } from "./types/events.js" */

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

/** Returns the tools of a session with these functions. @param {(keyof typeof FUNCTIONS)[]} names */
export function tools(names) {
  return names.map((name) => FUNCTIONS[name].tool);
}

/**
 * Returns the output item of a `function_call` item; its result is text for the model, also for an unknown function.
 *
 * @param {ServerFunctionCall} item
 * @returns {FunctionCallOutput}
 */
export function answer({ name, arguments: given, call_id: call }) {
  return { type: "function_call_output", call_id: call, output: run(name, given) };
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
