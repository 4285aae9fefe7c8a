// Drops outdated responses to a request that is sent repeatedly. Responses may arrive out of order; an older one must
// not replace a newer one.

export class LatestResponse {
  private requests = 0;
  private newestShown = 0;

  /** Resolves to the response, or to `undefined` if a later one arrived first. An error counts as a response. */
  async of<T>(answer: Promise<T>): Promise<T | undefined> {
    this.requests += 1;
    const mine = this.requests;
    try {
      const response = await answer;
      return this.take(mine) ? response : undefined;
    } catch (fault) {
      if (this.take(mine)) throw fault;
      return undefined;
    }
  }

  private take(mine: number): boolean {
    if (mine < this.newestShown) return false;
    this.newestShown = mine;
    return true;
  }
}
