// The transcript so far: sent to the new call after the old one was lost, because the server keeps a session no longer than
// its call.

/** Stands for a question without a transcript: most models make none. */
const NO_TRANSCRIPT = "(A spoken question; its words were not kept.)";
/** Turns kept; the oldest are dropped beyond. */
const MAX_TURNS = 100;

export class Memory {
  /** { question: the caller's words or null, answer: the answer so far } */
  #turns = [];
  /** Response id -> its turn. */
  #responseTurns = new Map();

  /** The caller's turn ended. */
  asked() {
    this.#turns.push({ question: null, answer: "" });
    if (this.#turns.length > MAX_TURNS) this.#turns.shift();
  }

  /** The transcript of the caller's last turn. */
  transcribed(text) {
    const turn = this.#turns.at(-1);
    if (turn) turn.question = text;
  }

  /** A response to the last turn begins. */
  answers(response) {
    const turn = this.#turns.at(-1);
    if (turn) this.#responseTurns.set(response, turn);
  }

  /** More of an answer. */
  add(response, text) {
    const turn = this.#responseTurns.get(response);
    if (turn) turn.answer += text;
  }

  /** The client events that give a new call the transcript. Responses of the old call are not continued. */
  events() {
    this.#responseTurns.clear();
    const message = (role, type, text) => ({
      type: "conversation.item.create",
      item: { type: "message", role, content: [{ type, text }] },
    });
    return this.#turns
      .filter(({ answer }) => answer)
      .flatMap(({ question, answer }) => [
        message("user", "input_text", question ?? NO_TRANSCRIPT),
        message("assistant", "output_text", answer),
      ]);
  }
}
