// Headless Firefox, driven by WebDriver BiDi, which it speaks itself: no driver, and no browser but Debian's.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const EXECUTABLE = process.env.REPARTEE_FIREFOX ?? "/usr/bin/firefox-esr";
/** Pause between two looks. */
const POLL_MS = 50;
/** Time for Firefox to start, long enough for a busy machine. */
const STARTED_WITHIN_MS = 60_000;

/** No background traffic. What concerns calls is as a person has it, but for the prompt and the tap before sound. */
const PREFERENCES = {
  "app.update.disabledForTesting": true,
  "browser.shell.checkDefaultBrowser": false,
  "browser.safebrowsing.update.enabled": false,
  "datareporting.policy.dataSubmissionEnabled": false,
  "dom.push.connection.enabled": false,
  "extensions.getAddons.cache.enabled": false,
  "extensions.systemAddon.update.enabled": false,
  "media.autoplay.blocking_policy": 0,
  "media.autoplay.default": 0,
  "media.gmp-manager.updateEnabled": false,
  "media.navigator.permission.disabled": true,
  "media.navigator.streams.fake": true,
  "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false,
  "services.settings.server": "data:,#remote-settings-dummy/v1",
  "toolkit.telemetry.reportingpolicy.firstRun": false,
};

/** A page in a Firefox of its own. */
export class FirefoxPage {
  #socket;
  #context = "";
  #last = 0;
  /** @type {Map<number, { done: (value: any) => void, fail: (error: Error) => void }>} */
  #pending = new Map();

  /** @param {WebSocket} socket */
  constructor(socket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      const { id, type, result, error, message } = JSON.parse(data);
      const waiting = this.#pending.get(id);
      this.#pending.delete(id);
      if (type === "success") waiting?.done(result);
      else waiting?.fail(new Error(`${error}: ${message}`));
    });
    socket.addEventListener("close", () => {
      for (const { fail } of this.#pending.values()) fail(new Error("Firefox is gone"));
    });
  }

  /** Opens the session; returns the browser's version. @returns {Promise<string>} */
  async open() {
    const { capabilities } = await this.#send("session.new", { capabilities: {} });
    const { contexts } = await this.#send("browsingContext.getTree", {});
    this.#context = contexts[0].context;
    return capabilities.browserVersion;
  }

  /** Loads a page. @param {string} url */
  async goto(url) {
    await this.#send("browsingContext.navigate", { context: this.#context, url, wait: "complete" });
  }

  /**
   * Runs a function in the page; returns its result, which JSON can hold.
   *
   * @template Argument, Result
   * @param {(argument: Argument) => Result} run
   * @param {Argument} [argument]
   * @returns {Promise<Awaited<Result>>}
   */
  async evaluate(run, argument) {
    const text = `async () => JSON.stringify(await (${run})(${JSON.stringify(argument)}) ?? null)`;
    const { result, exceptionDetails } = await this.#send("script.callFunction", {
      functionDeclaration: text,
      target: { context: this.#context },
      awaitPromise: true,
      userActivation: true,
    });
    if (exceptionDetails) throw new Error(`page: ${exceptionDetails.text}`);
    return JSON.parse(result.value);
  }

  /**
   * Returns once a function in the page returns true.
   *
   * @template Argument
   * @param {(argument: Argument) => boolean} holds
   * @param {Argument} [argument]
   * @param {number} within in ms
   */
  async until(holds, argument, within = 30_000) {
    for (let waited = 0; !(await this.evaluate(holds, argument)); waited += POLL_MS) {
      if (waited > within) throw new Error(`not in time: ${holds}`);
      await sleep(POLL_MS);
    }
  }

  /**
   * @param {string} method
   * @param {object} params
   * @returns {Promise<any>}
   */
  #send(method, params) {
    this.#last += 1;
    const id = this.#last;
    const answered = new Promise((done, fail) => this.#pending.set(id, { done, fail }));
    this.#socket.send(JSON.stringify({ id, method, params }));
    return answered;
  }
}

/**
 * Runs `use` beside a sound server without a sound card: Firefox's AudioContext needs one.
 *
 * @template Result
 * @param {(address: string) => Promise<Result>} use
 */
async function withSound(use) {
  const folder = await mkdtemp(join(tmpdir(), "pulse-"));
  const socket = join(folder, "native");
  const modules = ["module-null-sink", `module-native-protocol-unix auth-anonymous=1 socket=${socket}`];
  const settings = ["-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", ...modules.map((load) => `--load=${load}`)];
  const env = { ...process.env, HOME: folder, XDG_RUNTIME_DIR: folder };
  const child = spawn("pulseaudio", settings, { stdio: "ignore", env });
  const ended = once(child, "exit");
  try {
    for (let waited = 0; !existsSync(socket); waited += POLL_MS) {
      if (child.exitCode !== null || waited > 20_000) throw new Error("pulseaudio did not start");
      await sleep(POLL_MS);
    }
    return await use(`unix:${socket}`);
  } finally {
    child.kill();
    await ended;
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Starts Firefox, opens a page for `use`, and always ends it.
 *
 * @template Result
 * @param {(page: FirefoxPage, version: string) => Promise<Result>} use
 */
export function withFirefox(use) {
  return withSound((sound) => withPage(sound, use));
}

/**
 * The same beside this sound server.
 *
 * @template Result
 * @param {string} sound
 * @param {(page: FirefoxPage, version: string) => Promise<Result>} use
 */
async function withPage(sound, use) {
  if (!existsSync(EXECUTABLE)) throw new Error(`${EXECUTABLE} is missing: run \`make setup-test\` first`);
  const profile = await mkdtemp(join(tmpdir(), "firefox-"));
  const lines = Object.entries(PREFERENCES).map(([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});\n`);
  await writeFile(join(profile, "user.js"), lines.join(""));
  const settings = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0", "about:blank"];
  // Firefox refuses to run with another user's home.
  const env = { ...process.env, HOME: profile, PULSE_SERVER: sound };
  const child = spawn(EXECUTABLE, settings, { stdio: ["ignore", "ignore", "pipe"], env });
  const ended = once(child, "exit");
  try {
    const socket = new WebSocket(`${await listening(child.stderr)}/session`);
    await new Promise((done, fail) => {
      socket.addEventListener("open", done);
      socket.addEventListener("error", () => fail(new Error("Firefox takes no commands")));
    });
    const page = new FirefoxPage(socket);
    return await use(page, await page.open());
  } finally {
    child.kill("SIGKILL");
    await ended;
    await rm(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

/** Reads where Firefox listens. @param {import("node:stream").Readable} stderr @returns {Promise<string>} */
function listening(stderr) {
  const said = new Promise((done, fail) => {
    /** @type {string[]} */
    const lines = [];
    const reader = createInterface(stderr);
    reader.on("line", (line) => {
      lines.push(line);
      const address = /WebDriver BiDi listening on (ws:\S+)/.exec(line)?.[1];
      if (address) done(address);
    });
    reader.on("close", () => fail(new Error(`Firefox did not start: ${lines.join("\n")}`)));
  });
  const late = sleep(STARTED_WITHIN_MS, undefined, { ref: false }).then(() => {
    throw new Error("Firefox did not start in time");
  });
  return Promise.race([said, late]);
}
