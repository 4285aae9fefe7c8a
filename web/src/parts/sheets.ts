// The terminal writes its styles into <style> elements, which the page's policy forbids, and rightly:
// what may write a style element may write any. Style sheets made by script are allowed. So while
// the terminal is being opened, the style elements it asks for are ones that keep their text in such
// a sheet.

/** Runs `open`, and gives what takes the sheets away again. */
export function withSheets(open: () => void): () => void {
  const made: CSSStyleSheet[] = [];
  const create = (tag: string): HTMLElement => document.createElementNS('http://www.w3.org/1999/xhtml', tag);
  const style = (): HTMLElement => {
    const sheet = new CSSStyleSheet();
    made.push(sheet);
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    const stand = create('span');
    stand.hidden = true;
    Object.defineProperty(stand, 'textContent', {
      get: () => '',
      set: (css: string) => {
        sheet.replaceSync(css);
      },
    });
    return stand;
  };
  const instead = (tag: string) => (tag === 'style' ? style() : create(tag));
  Object.defineProperty(document, 'createElement', { value: instead, configurable: true, writable: true });
  try {
    open();
  } finally {
    // What was laid over the document's own is taken off again.
    Reflect.deleteProperty(document, 'createElement');
  }
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !made.includes(sheet));
  };
}
