//! Passwords and certificates that change while a daemon runs.

use harness::look_for;
use harness::postgres::Server;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::{at, commands_run, harness, made, made_at_last, make, refused, stored, trouble};

/// Ends the connections of a user.
fn disconnect(server: &Server, user: &str) {
    server.sql(&format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{user}' \
         AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    ));
}

#[test]
fn f63_changed_password_is_reported_once_and_taken_from_the_configuration() {
    let server = Server::start();
    server.sql(
        "CREATE ROLE clerk LOGIN PASSWORD 'first-word'; GRANT CREATE ON DATABASE postgres TO clerk",
    );
    server.write(
        "pg_hba.conf",
        "local all postgres trust\nlocal all clerk scram-sha-256\n",
    );
    server.sql("SELECT pg_reload_conf()");
    let abide = at(&server.url_as("clerk:first-word"));
    abide.start();
    let mut known = vec![made_at_last(&abide, "before")];
    server.sql("ALTER ROLE clerk PASSWORD 'second-word'");
    disconnect(&server, "clerk");
    look_for("a refusal of the password", || {
        trouble(&abide).filter(|said| said.contains("(28P01)"))
    });
    let sentence = refused(&make(&abide, "refused"));
    assert!(
        sentence.contains("correct the password in `store`"),
        "{sentence}"
    );
    assert!(!sentence.contains("first-word"), "{sentence}");
    commands_run(&abide);
    look_for("attempts that were refused", || {
        let refused = server
            .log()
            .matches("password authentication failed")
            .count();
        (refused > 5).then_some(())
    });
    let log = std::fs::read_to_string(abide.path("daemon.log")).expect("a log");
    assert_eq!(log.matches("(28P01)").count(), 1, "{log}");
    let config = format!("store = {:?}\n", server.url_as("clerk:second-word"));
    std::fs::write(abide.path("config.toml"), config).expect("a configuration");
    known.push(made_at_last(&abide, "after"));
    assert_eq!(trouble(&abide), None);
    known.sort();
    assert_eq!(stored(&server), known);
    let status = abide.json(["status", "--json"]);
    assert!(!status.to_string().contains("\"store\""), "{status}");
}

/// Certificate of this machine that is valid up to the first day of a year.
fn certificate(key: &KeyPair, year: i32) -> String {
    let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).expect("a name");
    params.not_before = date_time_ymd(2_000, 1, 1);
    params.not_after = date_time_ymd(year, 1, 1);
    params.self_signed(key).expect("a certificate").pem()
}

#[test]
fn f64_expired_certificate_of_the_server_is_refused_until_there_is_another() {
    let server = Server::on_loopback(&[]);
    let key = KeyPair::generate().expect("a key");
    let valid = certificate(&key, 4_000);
    server.write("server.key", &key.serialize_pem());
    server.write("server.crt", &valid);
    server.sql("ALTER SYSTEM SET ssl = on");
    server.sql("SELECT pg_reload_conf()");
    let abide = at(&server.tls_url());
    let ca_file = abide.path("ca.pem");
    std::fs::write(&ca_file, &valid).expect("a file");
    let config = format!("store = {:?}\nca_file = {ca_file:?}\n", server.tls_url());
    std::fs::write(abide.path("config.toml"), config).expect("a configuration");
    abide.start();
    let mut known = vec![made_at_last(&abide, "before")];
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'abide'";
    assert_eq!(server.sql(encrypted), "t");
    server.write("server.crt", &certificate(&key, 2_001));
    server.sql("SELECT pg_reload_conf()");
    look_for("a refusal of the certificate", || {
        disconnect(&server, "postgres");
        trouble(&abide).filter(|said| said.contains("certificate"))
    });
    let sentence = refused(&make(&abide, "refused"));
    assert!(sentence.contains("expired"), "{sentence}");
    commands_run(&abide);
    server.write("server.crt", &valid);
    server.sql("SELECT pg_reload_conf()");
    known.push(made_at_last(&abide, "after"));
    known.sort();
    assert_eq!(stored(&server), known);
    let made = made(&make(&abide, "again"));
    assert!(stored(&server).contains(&made));
}
