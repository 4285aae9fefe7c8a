// How the page is built. Everything goes into files of its own under assets/, since the page may
// load nothing that stands inside its HTML.
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

// `ABIDE_URL=http://127.0.0.1:PORT npm run dev` works on the page against a real daemon.
const daemon = process.env['ABIDE_URL'] ?? 'http://127.0.0.1:7420';

export default defineConfig({
  plugins: [react()],
  server: {
    proxy: {
      '/v1': { target: daemon, ws: true, changeOrigin: true, headers: { origin: daemon } },
    },
  },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
  },
  // Generous, since nothing here is measured: a busy machine takes its time.
  test: { include: ['src/**/*.test.ts'], testTimeout: 60_000 },
});
