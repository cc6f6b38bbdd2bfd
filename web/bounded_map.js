// A map that forgets its oldest entries.

/**
 * @template Value
 * @extends {Map<string, Value>}
 */
export class BoundedMap extends Map {
  #most;

  /** @param {number} most largest number of entries */
  constructor(most) {
    super();
    this.#most = most;
  }

  /**
   * Adds an entry, and drops the oldest one if there are too many.
   *
   * @override
   * @param {string} key
   * @param {Value} value
   */
  set(key, value) {
    super.set(key, value);
    const [oldest] = this.keys();
    if (oldest !== undefined && this.size > this.#most) this.delete(oldest);
    return this;
  }
}
