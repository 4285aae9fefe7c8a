// The condition of a timer in a few words.

function is(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function word(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : JSON.stringify(value);
}

export function conditionWords(until: unknown): string {
  if (!is(until)) return word(until);
  if (Array.isArray(until['all'])) return until['all'].map(conditionWords).join(' and ');
  if (Array.isArray(until['any'])) return until['any'].map(conditionWords).join(' or ');
  if ('port' in until) return `port ${word(until['port'])} is open`;
  if ('url' in until) {
    const status = 'status' in until ? ` answers ${word(until['status'])}` : ' answers';
    return word(until['url']) + status + ('body' in until ? ` with ${word(until['body'])}` : '');
  }
  if ('file' in until) {
    const matches = 'matches' in until ? ` and matches ${word(until['matches'])}` : '';
    return `${word(until['file'])} is ${word(until['is'] ?? 'present')}${matches}`;
  }
  if ('session' in until) {
    if ('output' in until) return `${word(until['session'])} writes ${word(until['output'])}`;
    return `${word(until['session'])} has ended`;
  }
  if ('command' in until) return `\`${word(until['command'])}\` succeeds`;
  return JSON.stringify(until);
}
