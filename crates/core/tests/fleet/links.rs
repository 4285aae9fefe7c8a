//! Links between the daemons and the database of a world, which lose requests and answers.

use abide_core::fleet::Statement;

use crate::database::{Batch, BatchAnswer, State};
use crate::world::{DEADLINE, Happening, Place, Reply, Request, Sender, World};

impl World {
    pub fn request(&mut self, place: Place, request: Request) {
        let loss = self.random.chance(self.losses);
        let machine = &mut self.machines[place];
        machine.sent += 1;
        let link = machine.link;
        let sender = Sender {
            place,
            life: machine.life,
            id: machine.id,
            connection: self.connection,
        };
        let delay = 1 + self.random.below(link.delay + 1);
        if !self.is_up && self.random.chance(70) {
            let reply = Reply::Unsent(request);
            return self.put(delay, Happening::Reply(place, sender.life, reply));
        }
        if !self.is_up || link.no_requests || loss {
            return self.lose(sender, request);
        }
        self.put(delay, Happening::Request(sender, request));
    }

    /// The daemon learns by a broken connection or by its own deadline that there is no answer.
    pub fn lose(&mut self, sender: Sender, request: Request) {
        let delay = if self.random.chance(50) { 50 } else { DEADLINE };
        let reply = Reply::Lost(request);
        self.put(delay, Happening::Reply(sender.place, sender.life, reply));
    }

    pub fn reply(&mut self, sender: Sender, request: Request, reply: Reply) {
        let link = self.machines[sender.place].link;
        if link.no_answers || self.random.chance(self.losses) {
            return self.lose(sender, request);
        }
        let delay = 1 + self.random.below(link.delay + 1);
        self.put(delay, Happening::Reply(sender.place, sender.life, reply));
    }

    pub fn arrive(&mut self, sender: Sender, request: Request) {
        if sender.connection != self.connection || !self.is_up {
            return self.lose(sender, request);
        }
        let locked = match &request {
            Request::Statement(
                _,
                Statement::Claim { shard, .. } | Statement::HandBack { shard, .. },
            ) => self.database.locked.get(shard),
            Request::Batch(batch) => self.database.locked.get(&batch.shard),
            Request::Open(shard, ..) => self.database.locked.get(shard),
            Request::Statement(..) | Request::Read(..) => None,
        };
        if let Some(until) = locked {
            let delay = until.saturating_sub(self.time) + 1;
            return self.put(delay, Happening::Request(sender, request));
        }
        match &request {
            Request::Statement(number, statement) => {
                let answer = self.database.execute(self.time, sender.id, statement);
                let number = *number;
                self.reply(sender, request, Reply::Statement(number, answer));
            }
            Request::Batch(batch) => {
                let (shard, (epoch, _)) = (batch.shard, batch.stamp);
                let is_owner = self.database.owns(sender.id, shard, epoch);
                if !is_owner || batch.timeline != self.database.timeline {
                    let reply = Reply::Batch(batch.stamp, BatchAnswer::Fenced);
                    return self.reply(sender, request, reply);
                }
                let hold = if self.random.chance(self.slow_batches) {
                    self.random.below(4_000)
                } else {
                    self.batch_time
                };
                if hold == 0 {
                    return self.commit(sender, batch);
                }
                self.database.locked.insert(shard, self.time + hold);
                self.put(hold, Happening::Commit(sender, batch.clone()));
            }
            Request::Open(shard, epoch, newest) => {
                let (shard, epoch) = (*shard, *epoch);
                let is_owner = self.database.owns(sender.id, shard, epoch);
                let opened = is_owner.then(|| self.database.open(shard, newest));
                self.reply(sender, request, Reply::Opened(shard, epoch, opened));
            }
            Request::Read(shard, stamp) => {
                let reply = Reply::Read(*stamp, self.database.read(*shard));
                self.reply(sender, request, reply);
            }
        }
    }

    pub fn commit(&mut self, sender: Sender, batch: &Batch) {
        let row = self.database.rows.shards.get(&batch.shard);
        assert!(
            row.is_some_and(|row| row.epoch == batch.stamp.0),
            "CHECK owner: a former owner commits"
        );
        let answer = self.database.commit(self.time, sender.id, batch);
        if let BatchAnswer::Committed(rows) = &answer {
            for (number, row) in rows {
                if row.state == State::Completed {
                    self.truths.completed((batch.shard, *number), self.time);
                }
            }
        }
        let reply = Reply::Batch(batch.stamp, answer);
        self.reply(sender, Request::Batch(batch.clone()), reply);
    }
}
