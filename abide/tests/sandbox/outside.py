"""The internet of the network tests: DNS, web servers and a proxy at every address. Ends when its input is closed."""
import os, socket, ssl, struct, sys, threading

folder = sys.argv[1]
log = open(os.path.join(folder, "queries"), "a", buffering=1)

NAMES = {
    "loop.test": ["127.0.0.1"], "private.test": ["10.0.0.5"], "local.test": ["169.254.1.1"],
    "metadata.test": ["169.254.169.254"], "own.test": ["93.184.216.1"], "mapped.test": ["::ffff:127.0.0.1"],
    "nat64.test": ["64:ff9b::7f00:1"], "6to4.test": ["2002:7f00:1::"], "zero.test": ["0.0.0.0"],
    "rebind.test": ["93.184.216.34", "127.0.0.1"],
}
asked = {}

def reply(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]])
        at += 1 + query[at]
    name = b".".join(labels).decode().lower()
    kind = struct.unpack(">H", query[at + 1:at + 3])[0]
    log.write(f"{name} {kind}\n")
    addresses = [] if name.startswith("gone.") else NAMES.get(name, ["93.184.216.34"])
    if name == "rebind.test" and kind == 1:
        asked[name] = asked.get(name, 0) + 1
        addresses = [addresses[min(asked[name], 2) - 1]]
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    answers = []
    for address in addresses:
        if family and (":" in address) == (family == socket.AF_INET6):
            data = socket.inet_pton(family, address)
            answers.append(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(data)) + data)
    # The name does not exist.
    flags = b"\x81\x83" if name.startswith("gone.") else b"\x81\x80"
    return query[:2] + flags + struct.pack(">HHHH", 1, len(answers), 0, 0) + query[12:at + 5] + b"".join(answers)

def serve_names(server):
    while True:
        query, client = server.recvfrom(4096)
        server.sendto(reply(query), client)

def read_head(stream):
    head = b""
    while b"\r\n\r\n" not in head:
        more = stream.recv(4096)
        if not more: return None
        head += more
    return head.decode(errors="replace")

def web(stream, scheme):
    while True:
        head = read_head(stream)
        if head is None: return
        path = head.split(" ")[1]
        host = [line.split(":", 1)[1].strip() for line in head.split("\r\n") if line.lower().startswith("host:")]
        if path.startswith("/to/"):
            stream.sendall(f"HTTP/1.1 302 Found\r\nLocation: {scheme}://{path[4:]}/\r\nContent-Length: 0\r\n\r\n".encode())
            continue
        if path.startswith("/slow"):
            threading.Event().wait(float(path[5:] or 1))
        body, status = f"outside {path} {''.join(host)}\n".encode(), "200 OK"
        if path.startswith("/files/"):
            body, status = stored(path)
        stream.sendall(f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

def stored(path):
    path = os.path.join(folder, path.lstrip("/").split("?")[0])
    if os.path.isdir(path): path = os.path.join(path, "index.html")
    try:
        with open(path, "rb") as file: return file.read(), "200 OK"
    except OSError: return b"", "404 Not Found"

def proxy(stream):
    head = read_head(stream)
    log.write("proxy " + head.split("\r\n")[0] + "\n")
    stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    tls(stream)

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))

def tls(stream):
    with context.wrap_socket(stream, server_side=True) as secure: web(secure, "https")

def echo(stream):
    while data := stream.recv(65536): stream.sendall(data.upper())

def serve(port, act):
    server = socket.create_server(("0.0.0.0", port), backlog=512)
    def one(stream):
        try:
            with stream: act(stream)
        except OSError: pass
    def accept():
        while True:
            stream, _ = server.accept()
            threading.Thread(target=one, args=(stream,), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()

names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# Replies have the address that was asked, so each address of a resolver has a socket of its own.
names.bind(("93.184.216.53", 53))
threading.Thread(target=serve_names, args=(names,), daemon=True).start()
serve(80, lambda stream: web(stream, "http"))
serve(443, tls)
serve(22, echo)
serve(8443, echo)
serve(3128, proxy)
print("ready", flush=True)
sys.stdin.read()
