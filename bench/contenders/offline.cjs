// Loaded into a contender's Node before its own code: every name that is not loopback fails to resolve,
// so that a measurement sends nothing out and waits for nothing.
const dns = require("node:dns");
const real = dns.lookup;
dns.lookup = function (host, options, callback) {
  const done = typeof options === "function" ? options : callback;
  if (host === "localhost" || host === "127.0.0.1" || host === "::1") return real.apply(dns, arguments);
  process.nextTick(done, Object.assign(new Error("offline: " + host), { code: "ENOTFOUND" }));
};
