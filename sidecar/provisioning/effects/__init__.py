"""What this room does to claims and volumes, one file for each kind of effect. When each is done: `provisioning.rules`."""
