use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::harness::{Abide, look_for};
use crate::sink::{Asked, Identity, Sink};
use crate::{call, configured, delivered, id_of, mission};

const KEY: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn hooked(address: &str, more: &str) -> Abide {
    let config = format!(
        "{more}\n[[wakers]]\nwebhook = \"{address}\"\nsecret = \"whsec_{KEY}\"\nafter = 0\n"
    );
    configured(&config)
}

/// A receiver: verifies the signature, then reads the body.
fn checked(asked: &Asked) -> Value {
    let (id, time) = (
        asked.header("webhook-id"),
        asked.header("webhook-timestamp"),
    );
    let key = BASE64_STANDARD.decode(KEY).expect("a key");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    mac.update(format!("{id}.{time}.{}", asked.body).as_bytes());
    let wanted = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(asked.header("webhook-signature"), format!("v1,{wanted}"));
    serde_json::from_str(&asked.body).expect("JSON")
}

#[test]
fn webhook_is_signed_and_sent_over_tls() {
    let identity = Identity::new();
    let sink = Sink::over_tls(&["204 Taken"], &identity);
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = folder.path().join("ca.pem");
    fs::write(&certificate, identity.pem()).expect("a certificate");
    let address = format!("https://localhost:{}/in?a=1", sink.address.port());
    let abide = hooked(&address, &format!("ca_file = {certificate:?}"));
    abide.start();
    let timer = mission(&abide, "look at the logs");
    let asked = sink.next();
    assert!(asked.head.starts_with("POST /in?a=1 HTTP/1.1"), "{asked:?}");
    let told = checked(&asked);
    assert_eq!(told["type"], "timer.completed");
    assert_eq!(told["data"]["timer_id"], timer);
    let agent = told["data"]["agent"].as_str().expect("a name");
    assert_eq!(abide_core::settings_name(agent), "default");
    let text = told["data"]["text"].as_str().expect("a text");
    assert!(text.contains("Mission: look at the logs"), "{text}");
    let stamp = told["timestamp"].as_str().expect("a stamp");
    assert!(stamp.ends_with('Z') && stamp.contains('T'), "{stamp}");
    let message = delivered(&abide, |delivery| delivery["ok"] == true);
    assert_eq!(message["message_id"], asked.header("webhook-id"));
    let delivery = &message["deliveries"][0];
    let shown = format!("webhook https://localhost:{}", sink.address.port());
    assert_eq!(delivery["waker"], shown, "no path, which may be a secret");
    assert_eq!(delivery["fault"], Value::Null);
    assert_eq!(message["seen_at"], Value::Null, "waking is not reading");
}

#[test]
fn failed_webhook_is_shown_and_sent_again_with_the_same_id() {
    // The server asks for a delay of a minute, so that nothing is sent before the manual send.
    let down = "503 Down\nretry-after: 60";
    let sink = Sink::new(&[down, "302 Elsewhere\nlocation: /", "200 OK"]);
    let abide = hooked(&format!("http://{}/", sink.address), "");
    abide.start();
    mission(&abide, "m");
    let first = sink.next();
    let message = delivered(&abide, |delivery| delivery["attempts"] == 1);
    let delivery = &message["deliveries"][0];
    assert_eq!(delivery["ok"], false);
    assert!(
        delivery["fault"].as_str().unwrap().contains("503"),
        "{delivery}"
    );
    let pause = delivery["next_at"].as_u64().unwrap() - delivery["at"].as_u64().unwrap();
    assert!((59_900..=120_000).contains(&pause), "{delivery}");
    let path = format!(
        "/v1/messages/{}/wake",
        message["message_id"].as_str().unwrap()
    );
    assert_eq!(abide.post(&path, &json!({})).status, 200);
    let second = sink.next();
    let message = delivered(&abide, |delivery| delivery["attempts"] == 2);
    let fault = message["deliveries"][0]["fault"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(fault.contains("redirects are not followed"), "{fault}");
    // A restart keeps the delivery and makes the next attempt.
    abide.kill_daemon();
    abide.start();
    let third = sink.next();
    delivered(&abide, |delivery| delivery["ok"] == true);
    let ids = [&first, &second, &third].map(|asked| asked.header("webhook-id"));
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    checked(&third);
    assert!(!sink.was_asked(), "once it is taken it is not sent again");
}

#[test]
fn status_410_disables_the_webhook() {
    let sink = Sink::new(&["410 Gone", "200 OK"]);
    let abide = hooked(&format!("http://{}/", sink.address), "");
    abide.start();
    mission(&abide, "first");
    sink.next();
    let message = delivered(&abide, |delivery| delivery["state"] == "given_up");
    let fault = message["deliveries"][0]["fault"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(fault.contains("410 Gone"), "{fault}");
    abide.kill_daemon();
    abide.start();
    let second = mission(&abide, "second");
    let skipped = delivered(&abide, |delivery| delivery["attempts"] == 0);
    assert_eq!(skipped["timer_id"], second, "{skipped}");
    assert_eq!(skipped["deliveries"][0]["state"], "given_up", "{skipped}");
    assert_eq!(skipped["deliveries"][0]["fault"], fault, "{skipped}");
    // Both would have been sent by the time this one has completed and was delivered.
    let passed = json!({"total_duration": 0.5, "reason": "the second is due"});
    id_of(&call(&abide, "timer", passed));
    assert!(!sink.was_asked());
    // A manual send is always made.
    let id = message["message_id"].as_str().unwrap();
    assert!(abide.output(["messages", "resend", id]).status.success());
    assert_eq!(sink.next().header("webhook-id"), id);
    mission(&abide, "third");
    assert!(
        checked(&sink.next())["data"]["text"]
            .as_str()
            .unwrap()
            .contains("third")
    );
}

#[test]
fn retry_after_survives_a_restart() {
    let sink = Sink::new(&["429 Slowly\nretry-after: 7200", "200 OK"]);
    let abide = hooked(&format!("http://{}/", sink.address), "");
    abide.start();
    mission(&abide, "m");
    sink.next();
    let message = delivered(&abide, |delivery| delivery["attempts"] == 1);
    let delivery = &message["deliveries"][0];
    let pause = delivery["next_at"].as_u64().unwrap() - delivery["at"].as_u64().unwrap();
    assert!((7_190_000..=7_300_000).contains(&pause), "{delivery}");
    abide.kill_daemon();
    abide.start();
    let passed = json!({"total_duration": 0.5, "reason": "a try would have been made"});
    call(&abide, "timer", passed);
    assert!(!sink.was_asked());
}

#[test]
fn messages_are_listed_by_pages_from_the_newest_on() {
    let abide = configured("");
    abide.start();
    for n in 0..5 {
        mission(&abide, &format!("{n}"));
        look_for("one more message", || {
            let listed = abide.get("/v1/messages?limit=100");
            let messages = listed["messages"].as_array()?;
            (messages.len() == n + 1).then_some(())
        });
    }
    let mut told = Vec::new();
    let mut path = "/v1/messages?limit=2".to_owned();
    loop {
        let page = abide.get(&path);
        let messages = page["messages"].as_array().expect("a list").clone();
        assert!(messages.len() <= 2, "{page}");
        let texts = messages
            .iter()
            .map(|m| m["text"].as_str().unwrap().to_owned());
        told.extend(texts);
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/messages?limit=2&after={next}"),
            None => break,
        }
    }
    let missions: Vec<&str> = told
        .iter()
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("Mission: ")))
        .collect();
    assert_eq!(missions, ["4", "3", "2", "1", "0"]);
    let wrong = abide.request("GET", "/v1/messages?after=x", &Value::Null);
    assert_eq!(wrong.expect("an answer").status, 400);
}
