// Parser of server-sent events.

export interface ServerEvent {
  id: string | undefined;
  event: string;
  data: string;
}

/** Accepts text in chunks of any size and returns the events that are complete. */
export class EventParser {
  private rest = '';
  private id: string | undefined;
  private event = '';
  private data: string[] = [];

  take(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    this.rest += text;
    // A carriage return at the end may be the first half of a line end.
    const complete = /\r\n|\n|\r(?!$)/g;
    let from = 0;
    for (let end = complete.exec(this.rest); end; end = complete.exec(this.rest)) {
      this.line(this.rest.slice(from, end.index), events);
      from = complete.lastIndex;
    }
    this.rest = this.rest.slice(from);
    return events;
  }

  private line(line: string, events: ServerEvent[]): void {
    if (line === '') {
      if (this.data.length > 0) {
        events.push({ id: this.id, event: this.event || 'message', data: this.data.join('\n') });
      }
      this.event = '';
      this.data = [];
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1));
    if (field === 'data') this.data.push(value);
    else if (field === 'event') this.event = value;
    else if (field === 'id' && !value.includes('\0')) this.id = value;
  }
}
