//! The language of the scenarios.

mod read;
mod write;

use abide_core::time::Boot;
use abide_core::{Effect, Engine, Event, Millis, Mono, Now, QuestionId, Wall};

use crate::script;
use read::Line;

/// One engine and its clocks.
pub struct Stage {
    engine: Engine,
    now: Now,
    questions: Vec<QuestionId>,
    /// The commit of the next records fails.
    failing: bool,
}

/// Value of the monotonic clock at the start of a scenario, so that times before it can be expressed.
const BEGIN: u64 = 1_000_000_000;

impl script::Stage for Stage {
    fn new() -> Self {
        Stage {
            engine: Engine::new(7),
            now: Now {
                wall: Wall(1_700_000_000_000),
                boot: Boot(BEGIN),
                mono: Mono(BEGIN),
            },
            questions: Vec::new(),
            failing: false,
        }
    }

    fn happens(&mut self, line: &str) -> Result<String, String> {
        let mut out = String::new();
        match read::line(line, self)? {
            Line::Event(event) => self.step(event, &mut out),
            Line::Pass(time) => self.pass(time, &mut out),
            Line::Late(time) => {
                self.advance(time);
                self.step(Event::Tick, &mut out);
            }
            Line::Suspend(time) => {
                self.now.wall.0 += time.0;
                self.now.boot.0 += time.0;
                self.step(Event::Tick, &mut out);
            }
            Line::Wall(by) => {
                self.now.wall.0 = self.now.wall.0.saturating_add_signed(by);
                self.step(Event::Tick, &mut out);
            }
            Line::Fail => self.failing = true,
            Line::Show(session) => {
                let shown = write::session(&self.engine, session, self);
                out += &format!("  = {shown}\n");
            }
            Line::Alarm => {
                let alarm = self
                    .engine
                    .next_mono_tick()
                    .map(|at| at.since(self.now.mono));
                let alarm = alarm.map_or("none".into(), |time| format!("in {time}"));
                out += &format!("  = {alarm}\n");
            }
        }
        Ok(out)
    }
}

impl Stage {
    fn advance(&mut self, time: Millis) {
        self.now.wall.0 += time.0;
        self.now.boot.0 += time.0;
        self.now.mono.0 += time.0;
    }

    /// Lets time pass with a tick at each alarm, as a daemon would.
    fn pass(&mut self, time: Millis, out: &mut String) {
        let target = self.now.mono + time;
        while let Some(at) = self.engine.next_mono_tick()
            && at < target
        {
            self.advance(at.since(self.now.mono));
            let mut told = String::new();
            self.step(Event::Tick, &mut told);
            let rest = target.since(at);
            for line in told.lines() {
                out.push_str(&format!("{line}   ({rest} before)\n"));
            }
        }
        self.advance(target.since(self.now.mono));
        self.step(Event::Tick, out);
    }

    fn step(&mut self, event: Event, out: &mut String) {
        let mut effects = Vec::new();
        self.engine.step(self.now, event, &mut effects);
        assert!(effects.is_sorted_by_key(Effect::rank), "order: {effects:?}");
        let is_record = |effect: &Effect| matches!(effect, Effect::Record(_));
        if self.failing && effects.iter().any(is_record) {
            self.failing = false;
            effects.retain(|effect| !is_record(effect));
            self.engine.commit_failed(self.now, &mut effects);
        } else {
            self.engine.begin_commit();
            self.engine.commit_succeeded();
        }
        for effect in &effects {
            if let Effect::Ask { question } = effect {
                self.name_of(*question);
            }
        }
        for effect in effects {
            out.push_str("  > ");
            out.push_str(&write::effect(&effect, self));
            out.push('\n');
        }
    }

    /// Number of a question, assigned when it first appears.
    fn name_of(&mut self, question: QuestionId) -> usize {
        let known = self.questions.iter().position(|known| *known == question);
        known.unwrap_or_else(|| {
            self.questions.push(question);
            self.questions.len() - 1
        }) + 1
    }
}
