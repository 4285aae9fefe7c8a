//! Takes the built page into the program: every file as it is and, where that makes it smaller,
//! compressed, so that nothing is compressed while somebody waits. Where there is no built page
//! (nobody has run npm) a small one that says so takes its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Files smaller than this are sent as they are.
const WORTH: usize = 256;

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where to"));
    let web = here.join("../web");
    // A published crate contains the built page.
    let packaged = here.join("page");
    let dist = match packaged.is_dir() {
        true => packaged,
        false => web.join("dist"),
    };
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = BTreeMap::new();
    if dist.join("index.html").is_file() {
        println!("cargo:rerun-if-changed={}", dist.display());
        gather(&dist, "", &mut files);
    } else {
        let instead = here.join("src/http/no_page.html");
        println!("cargo:rerun-if-changed={}", instead.display());
        if web.is_dir() {
            // A path that does not exist would be looked for at every build.
            println!("cargo:rerun-if-changed={}", web.display());
        }
        files.insert("/index.html".to_owned(), instead);
    }
    let mut table = String::from("pub(super) static FILES: &[File] = &[\n");
    for (number, (path, source)) in files.iter().enumerate() {
        entry(&mut table, &out, number, path, source);
    }
    table.push_str("];\n");
    fs::write(out.join("page.rs"), table).expect("the table is written");
}

/// All files below a folder, by the path under which they are served.
fn gather(folder: &Path, path: &str, files: &mut BTreeMap<String, PathBuf>) {
    for item in fs::read_dir(folder).expect("the built page").flatten() {
        let name = item.file_name().into_string().expect("a plain name");
        let at = format!("{path}/{name}");
        // Maps are for whoever works on the page, who has a server of their own.
        if name.starts_with('.') || name.ends_with(".map") {
            continue;
        }
        if item.path().is_dir() {
            gather(&item.path(), &at, files);
        } else {
            files.insert(at, item.path());
        }
    }
}

fn entry(table: &mut String, out: &Path, number: usize, path: &str, source: &Path) {
    let bytes = fs::read(source).expect("a file of the page");
    let (kind, is_packed) = kind(path);
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let tag = format!("{:016x}", hasher.finish());
    let plain = keep(out, number, "plain", &bytes);
    let smaller = |form: &str, packed: Vec<u8>| {
        let worth = !is_packed && bytes.len() >= WORTH && packed.len() < bytes.len();
        match worth {
            true => format!(
                "Some(include_bytes!({:?}))",
                keep(out, number, form, &packed)
            ),
            false => "None".to_owned(),
        }
    };
    let brotli = smaller(
        "br",
        if is_packed {
            Vec::new()
        } else {
            brotli(&bytes)
        },
    );
    let gzip = smaller("gz", if is_packed { Vec::new() } else { gzip(&bytes) });
    writeln!(
        table,
        "File {{ path: {path:?}, kind: {kind:?}, tag: {tag:?}, plain: include_bytes!({plain:?}), \
         brotli: {brotli}, gzip: {gzip} }},"
    )
    .expect("text grows");
}

fn keep(out: &Path, number: usize, form: &str, bytes: &[u8]) -> PathBuf {
    let path = out.join(format!("page-{number}.{form}"));
    fs::write(&path, bytes).expect("a form of the file is written");
    path
}

fn brotli(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut writer = brotli::CompressorWriter::new(&mut packed, 64 << 10, 11, 22);
    writer.write_all(bytes).expect("memory takes it");
    drop(writer);
    packed
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    writer.write_all(bytes).expect("memory takes it");
    writer.finish().expect("memory takes it")
}

/// What a file is, and whether it is compressed already.
fn kind(path: &str) -> (&'static str, bool) {
    let ending = path.rsplit('.').next().unwrap_or_default();
    match ending {
        "html" => ("text/html; charset=utf-8", false),
        "js" | "mjs" => ("text/javascript; charset=utf-8", false),
        "css" => ("text/css; charset=utf-8", false),
        "json" => ("application/json", false),
        "webmanifest" => ("application/manifest+json", false),
        "svg" => ("image/svg+xml", false),
        "txt" => ("text/plain; charset=utf-8", false),
        "wasm" => ("application/wasm", false),
        "ico" => ("image/x-icon", false),
        "png" => ("image/png", true),
        "webp" => ("image/webp", true),
        "woff2" => ("font/woff2", true),
        _ => ("application/octet-stream", false),
    }
}
