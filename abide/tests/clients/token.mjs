// Loaded before a program of others: whatever it asks over HTTP carries the token of the abide under
// test, which it knows nothing of.
import diagnostics from 'node:diagnostics_channel';

const shown = ['authorization', `Bearer ${process.env.ABIDE_TOKEN}`];
diagnostics.subscribe('undici:request:create', ({ request }) => request.addHeader(...shown));
diagnostics.subscribe('http.client.request.created', ({ request }) => request.setHeader(...shown));
