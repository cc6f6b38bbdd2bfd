// Table of the admin page: the nodes of a cluster, as this one knows them.

import { request } from "./server.js";
import { $ } from "./view.js";

/**
 * A node as the server lists it.
 *
 * @typedef {object} ListedNode
 * @property {string} name
 * @property {string} address
 * @property {string} model
 * @property {string} version
 * @property {string} phase
 * @property {string} state
 * @property {number} slots
 * @property {number} free
 */

/** Reads the nodes and shows them. Keeps the old ones if the server does not tell. */
export async function showNodes() {
  const reply = await request("/v1/cluster/nodes");
  if (!reply.ok) return;
  const { data = [], feed = "" } = await reply.json();
  /** @type {ListedNode[]} */
  const nodes = data;
  const rows = nodes.sort((one, other) => one.name.localeCompare(other.name)).map(row);
  $("nodes").tBodies[0]?.replaceChildren(...rows);
  $("feed").textContent = feed === "live" ? "" : "The messages of the nodes do not come (NATS): this is what was known last.";
  $("nodes-card").hidden = false;
}

/** @param {ListedNode} node */
function row(node) {
  const state = node.state === "own" ? "this one" : node.state;
  const cells = [node.name, state, node.phase, `${node.free} of ${node.slots}`, node.model, node.address, node.version];
  const row = document.createElement("tr");
  row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
  return row;
}
