// The terminal writes its styles into <style> elements, which the page's content security policy forbids. Constructed
// style sheets are allowed. While the terminal opens, `createElement('style')` therefore returns an element that stores
// its text in a constructed style sheet.

/** Runs `open` and returns a function that removes the style sheets. */
export function withAdoptedStyles(open: () => void): () => void {
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
    // Restores the document's own `createElement`.
    Reflect.deleteProperty(document, 'createElement');
  }
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !made.includes(sheet));
  };
}
