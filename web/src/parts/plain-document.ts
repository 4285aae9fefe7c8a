// The terminal writes its styles into <style> elements, which the page's policy forbids, and rightly:
// what may write a style element may write any. Style sheets made by script are allowed, so the
// terminal is given a document whose style elements keep their text in such a sheet.

export interface Sheets {
  document: Document;
  dispose: () => void;
}

export function plainDocument(real: Document): Sheets {
  const made: CSSStyleSheet[] = [];
  const style = (): HTMLElement => {
    const sheet = new CSSStyleSheet();
    made.push(sheet);
    real.adoptedStyleSheets = [...real.adoptedStyleSheets, sheet];
    const stand = real.createElement('span');
    stand.hidden = true;
    Object.defineProperty(stand, 'textContent', {
      get: () => '',
      set: (css: string) => void sheet.replaceSync(css),
    });
    return stand;
  };
  const document = new Proxy(real, {
    get(target, name) {
      if (name === 'createElement') {
        return (tag: string, options?: ElementCreationOptions) =>
          tag === 'style' ? style() : real.createElement(tag, options);
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
  const dispose = () => {
    real.adoptedStyleSheets = real.adoptedStyleSheets.filter((sheet) => !made.includes(sheet));
  };
  return { document, dispose };
}
