// How the page is built. Everything goes into files of its own under assets/, since the page may
// load nothing that stands inside its HTML.
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  plugins: [react()],
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
  },
  test: { include: ['src/**/*.test.ts'] },
});
