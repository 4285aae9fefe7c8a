// Answers to the same question, asked again and again. They may come in another order than they were
// asked for; what an older one says is not shown over what a newer one said.

export class Newest {
  private asked = 0;
  private told = 0;

  /** The answer, or nothing where a later one was faster. A refusal counts as an answer. */
  async of<T>(answer: Promise<T>): Promise<T | undefined> {
    this.asked += 1;
    const mine = this.asked;
    try {
      const told = await answer;
      return this.take(mine) ? told : undefined;
    } catch (fault) {
      if (this.take(mine)) throw fault;
      return undefined;
    }
  }

  private take(mine: number): boolean {
    if (mine < this.told) return false;
    this.told = mine;
    return true;
  }
}
